/* SPDX-License-Identifier: MIT */
#include "cli/model_names.h"
#include "models/models.h"

#include <string.h>

static void add(struct cli_names *names, const char *name)
{
    VB_ASSERT(names->n < CLI_NAMES_MAX);
    if (names->n < CLI_NAMES_MAX)
        names->list[names->n++] = name;
}

struct cli_names cli_model_names(void)
{
    struct cli_names names = {.n = 0};
    int i, n;
    const struct vb_train_model *models = vb_train_models(&n);

    for (i = 0; i < n; i++)
        add(&names, models[i].name);
    return names;
}

struct cli_names cli_net_names(void)
{
    struct cli_names names = {.n = 0};
    int i, k, n;
    const struct vb_train_model *models = vb_train_models(&n);

    for (i = 0; i < n; i++)
        for (k = 0; k < VB_TRAIN_NETS && models[i].nets[k].name != NULL; k++)
            add(&names, models[i].nets[k].name);
    return names;
}

struct cli_names cli_table_names(void)
{
    struct cli_names names = {.n = 0};
    int i, n;
    const struct vb_layer_table *tables = vb_layer_tables(&n);

    for (i = 0; i < n; i++)
        add(&names, tables[i].name);
    return names;
}

int cli_find_model(const struct cli_command *command, const char *question, const char *given,
                   const struct cli_names *names, const char **name_p)
{
    char known[VB_OPTS_WHY];
    int i;

    if (given == NULL) {
        cli_names_text(names->list, names->n, known, sizeof(known));
        return cli_refuse(command, "%s %s", question, known);
    }
    i = cli_find_name(command, "model", given, names->list, names->n);
    if (i < 0)
        return CLI_USAGE;
    *name_p = names->list[i];
    return -1;
}

const struct vb_train_model *cli_net_find(const char *name, const struct vb_train_net **net_p)
{
    int i, k, n;
    const struct vb_train_model *models = vb_train_models(&n);

    for (i = 0; i < n; i++)
        for (k = 0; k < VB_TRAIN_NETS && models[i].nets[k].name != NULL; k++)
            if (strcmp(models[i].nets[k].name, name) == 0) {
                *net_p = &models[i].nets[k];
                return &models[i];
            }
    return NULL;
}
