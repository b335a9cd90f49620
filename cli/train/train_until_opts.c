/* SPDX-License-Identifier: MIT
 *
 * The option --until of verbena train: conditions that end a run, and what became of them.
 */
#include "cli/train/cmd_train.h"

#include <stdlib.h>
#include <string.h>

#define ITEM 40 /* longest condition */
#define PATIENCE 5
#define PATIENCE_MAX 1000000
#define LOSS_MAX 1e6
#define NAME "--until"

/* ---- several options ------------------------------------------------------------------------- */

/* Returns the value of --until at argument i, and where it is; NULL: there is none. */
static const char *value_at(int argc, char **argv, int i, int *at_p)
{
    size_t len = strlen(NAME);

    if (argv[i] == NULL || strncmp(argv[i], NAME, len) != 0)
        return NULL;
    *at_p = argv[i][len] == '\0' ? i + 1 : i;
    if (argv[i][len] == '=')
        return argv[i] + len + 1;
    return argv[i][len] == '\0' && i + 1 < argc ? argv[i + 1] : NULL;
}

/* Returns whether the value is in a list of texts, each after a comma. */
static bool is_listed(const char *list, const char *value)
{
    size_t len = strlen(value);
    const char *at;

    for (at = strstr(list, value); at != NULL; at = strstr(at + 1, value))
        if (at > list && at[-1] == ',' && (at[len] == ',' || at[len] == '\0'))
            return true;
    return false;
}

int cli_train_until_join(int argc, char **argv, char **joined_p)
{
    size_t room = strlen(NAME) + 2;
    char *list;
    int i, at, n = 0;

    *joined_p = NULL;
    for (i = 0; i < argc; i++)
        if (value_at(argc, argv, i, &at) != NULL) {
            room += strlen(value_at(argc, argv, i, &at)) + 1;
            n++;
        }
    if (n < 2)
        return -1;
    list = calloc(1, room);
    if (list == NULL)
        return cli_exit_code(vb_err_sys("calloc"));
    *joined_p = list;
    for (i = 0; i < argc; i++) { /* first each value after a comma */
        const char *value = value_at(argc, argv, i, &at);

        if (value != NULL && !is_listed(list, value))
            snprintf(list + strlen(list), room - strlen(list), ",%s", value);
    }
    memmove(list + strlen(NAME) + 1, list + 1, strlen(list)); /* with the zero */
    memcpy(list, NAME "=", strlen(NAME) + 1);
    for (i = 0; i < argc; i++)
        if (value_at(argc, argv, i, &at) != NULL)
            argv[at] = at == i ? list : list + strlen(NAME) + 1;
    return -1;
}

/* ---- conditions ------------------------------------------------------------------------------ */

static int refuse(const char *item)
{
    return cli_refuse(&cli_train,
                      "--until: %.*s must be accuracy=A with A from 0 to 1, loss=L, plateau or "
                      "plateau:K with a number of evaluations K from 1 on, such as --until "
                      "accuracy=0.97,plateau:5",
                      ITEM, item);
}

static int parse_item(const char *item, struct vb_until *u)
{
    *u = (struct vb_until){.kind = VB_UNTIL_PLATEAU, .patience = PATIENCE};
    if (strcmp(item, "plateau") == 0)
        return -1;
    if (strncmp(item, "plateau:", 8) == 0)
        return vb_parse_int(item + 8, &u->patience) && u->patience >= 1 &&
                       u->patience <= PATIENCE_MAX
                   ? -1
                   : refuse(item);
    if (strncmp(item, "accuracy=", 9) == 0) {
        u->kind = VB_UNTIL_ACCURACY;
        return vb_parse_real(item + 9, &u->value) && u->value > 0 && u->value <= 1 ? -1
                                                                                   : refuse(item);
    }
    u->kind = VB_UNTIL_LOSS;
    return strncmp(item, "loss=", 5) == 0 && vb_parse_real(item + 5, &u->value) && u->value > 0 &&
                   u->value <= LOSS_MAX
               ? -1
               : refuse(item);
}

int cli_train_until(const char *text, struct vb_train_until_opts *until)
{
    char item[ITEM + 1];
    size_t len;
    int rc;

    for (; text != NULL; text = text[len] != '\0' ? text + len + 1 : NULL) {
        len = strcspn(text, ",");
        if (len > ITEM)
            return refuse(text);
        if (until->n == VB_UNTIL_MAX)
            return cli_refuse(&cli_train, "--until: at most %d conditions", VB_UNTIL_MAX);
        memcpy(item, text, len);
        item[len] = '\0';
        rc = parse_item(item, &until->list[until->n]);
        if (rc >= 0)
            return rc;
        until->n++;
    }
    return -1;
}

/* ---- the result ------------------------------------------------------------------------------ */

void cli_train_until_json(struct vb_json *json, const struct vb_train_opts *o,
                          const struct vb_train_result *r)
{
    char asked[VB_UNTIL_LIST], by[VB_UNTIL_TEXT];
    const struct vb_until_result *u = &r->until;

    if (o->until.n == 0) {
        vb_json_text(json, "until", NULL);
        return;
    }
    vb_until_list(&o->until, asked);
    vb_json_object(json, "until");
    vb_json_text(json, "asked", asked);
    vb_json_bool(json, "reached", u->reached);
    if (u->reached) {
        vb_until_text(&o->until.list[u->which], by);
        vb_json_text(json, "by", by);
        vb_json_int(json, "step", u->step);
        vb_json_real(json, "time_to_s", u->time_to_s);
        vb_json_real(json, "wall_to_s", u->wall_to_s);
    } else {
        vb_json_text(json, "by", NULL);
        vb_json_text(json, "step", NULL);
        vb_json_text(json, "time_to_s", NULL);
        vb_json_text(json, "wall_to_s", NULL);
    }
    vb_json_int(json, "params_step", u->params_step);
    vb_json_int(json, "eval_every", u->eval_every);
    vb_json_real(json, "kept_mb", (double)u->kept_bytes / 1e6);
    vb_json_end(json);
}

void cli_train_until_print(const struct vb_train_opts *o, const struct vb_train_result *r)
{
    char text[VB_UNTIL_LIST];
    const struct vb_until_result *u = &r->until;

    if (o->until.n == 0)
        return;
    if (o->dry_run) {
        printf("until       evaluated every %lld steps; the best parameters need %.1f MB more a "
               "rank\n",
               (long long)u->eval_every, (double)u->kept_bytes / 1e6);
        return;
    }
    if (u->reached) {
        vb_until_text(&o->until.list[u->which], text);
        printf("until       %s reached at step %lld, after %.3f s of training (%.3f s in total)",
               text, (long long)u->step, u->time_to_s, u->wall_to_s);
    } else {
        vb_until_list(&o->until, text);
        printf("until       %s not reached in %lld steps: the highest accuracy was %.2f %%, the "
               "lowest loss %.4f",
               text, (long long)r->steps, 100 * u->accuracy, u->loss);
    }
    if (u->params_step != r->steps && r->stopped == 0)
        printf("; the parameters are those of step %lld, the best", (long long)u->params_step);
    printf("\n");
}
