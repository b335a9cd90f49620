/* SPDX-License-Identifier: MIT
 *
 * Converts the choices of a model to text and back. Each choice is one line: "conv1 forward blas".
 */
#include "kernels/choice/choice_priv.h"

#include <stdlib.h>

#define LINE_MAX_BYTES 128

const char *vb_k_plan_find(const struct vb_k_plan *plan, const char *name, enum vb_k_pass pass)
{
    int i;

    for (i = 0; i < plan->n; i++)
        if (plan->v[i].pass == pass && strcmp(plan->v[i].layer, name) == 0)
            return plan->v[i].backend;
    return NULL;
}

static bool good_name(const char *name)
{
    size_t n = strcspn(name, " \t\n#");

    return n > 0 && n < VB_K_NAME && name[n] == '\0';
}

/* Adds a choice and returns NULL, or returns the reason why it is not valid. */
static const char *add(struct vb_k_plan *plan, const char *name, enum vb_k_pass pass,
                       const char *backend)
{
    const struct vb_k_backend *known = vb_k_backend_find(backend);
    struct vb_k_choice *choice = &plan->v[plan->n];

    if (!good_name(name))
        return "a layer's name must be shorter than 32 characters and contain no space or #";
    if (known == NULL)
        return "no backend has this name";
    if (vb_k_plan_find(plan, name, pass) != NULL)
        return "this pass already has a backend";
    if (plan->n == VB_K_CHOICES_MAX)
        return "too many choices";
    snprintf(choice->layer, sizeof(choice->layer), "%s", name);
    choice->pass = pass;
    choice->backend = known->name;
    plan->n++;
    return NULL;
}

vb_status vb_k_plan_add(struct vb_k_plan *plan, const char *name, const struct vb_k_layer *layer)
{
    const char *backend, *why = NULL;
    int pass;

    for (pass = 0; pass < VB_K_PASSES && why == NULL; pass++) {
        backend = vb_k_layer_backend(layer, (enum vb_k_pass)pass);
        if (backend != NULL)
            why = add(plan, name, (enum vb_k_pass)pass, backend);
    }
    return why == NULL ? VB_OK : vb_err(VB_ERR_USAGE, "plan, layer %.64s: %s", name, why);
}

static const char *exact_backend(const struct vb_k_shape *shape, enum vb_k_pass pass)
{
    int i;

    for (i = 0; i < vb_k_n_backends; i++)
        if (vb_k_backend_allowed(vb_k_backends[i], false) && vb_k_backends[i]->can(shape, pass))
            return vb_k_backends[i]->name;
    return "";
}

vb_status vb_k_plan_prefer(struct vb_k_plan *plan, const char *name, const struct vb_k_shape *shape,
                           const char *backend)
{
    const struct vb_k_backend *known = vb_k_backend_find(backend);
    const char *why = known == NULL ? "no backend has this name" : NULL;
    int pass;

    for (pass = 0; pass < VB_K_PASSES && why == NULL; pass++)
        if (vb_k_has_pass(shape->kind, (enum vb_k_pass)pass))
            why = add(plan, name, (enum vb_k_pass)pass,
                      known->can(shape, (enum vb_k_pass)pass)
                          ? backend
                          : exact_backend(shape, (enum vb_k_pass)pass));
    return why == NULL ? VB_OK : vb_err(VB_ERR_USAGE, "plan, layer %.64s: %s", name, why);
}

const struct vb_k_choice *vb_k_plan_fast_math(const struct vb_k_plan *plan)
{
    int i;

    for (i = 0; i < plan->n; i++)
        if (vb_k_backend_find(plan->v[i].backend)->use == VB_K_FAST_MATH)
            return &plan->v[i];
    return NULL;
}

char *vb_k_plan_text(const struct vb_k_plan *plan)
{
    size_t size = (size_t)plan->n * LINE_MAX_BYTES + 1, at = 0;
    char *text = malloc(size);
    int i;

    if (text == NULL)
        return NULL;
    text[0] = '\0';
    for (i = 0; i < plan->n; i++)
        at += (size_t)snprintf(text + at, size - at, "%s %s %s\n", plan->v[i].layer,
                               vb_k_pass_str(plan->v[i].pass), plan->v[i].backend);
    return text;
}

bool vb_k_pass_find(const char *text, enum vb_k_pass *pass_p)
{
    int i;

    for (i = 0; i < VB_K_PASSES; i++)
        if (strcmp(text, vb_k_pass_str((enum vb_k_pass)i)) == 0) {
            *pass_p = (enum vb_k_pass)i;
            return true;
        }
    return false;
}

/* Parses a line without newline, and overwrites it. Returns NULL, or why the line is not valid. */
static const char *parse_line(struct vb_k_plan *plan, char *line)
{
    char *rest = NULL, *name = strtok_r(line, " \t\r", &rest);
    char *pass_text, *backend;
    enum vb_k_pass pass;

    if (name == NULL || name[0] == '#')
        return NULL;
    pass_text = strtok_r(NULL, " \t\r", &rest);
    backend = strtok_r(NULL, " \t\r", &rest);
    if (backend == NULL || strtok_r(NULL, " \t\r", &rest) != NULL)
        return "expected a layer, a pass and a backend";
    if (!vb_k_pass_find(pass_text, &pass))
        return "the pass must be forward, backward-data or backward-weights";
    return add(plan, name, pass, backend);
}

vb_status vb_k_plan_parse(const char *text, struct vb_k_plan *plan_p, char why[VB_OPTS_WHY])
{
    struct vb_k_plan *plan = calloc(1, sizeof(*plan));
    char line[LINE_MAX_BYTES];
    const char *wrong = NULL;
    int number;

    if (plan == NULL)
        return vb_err_sys("calloc");
    for (number = 1; *text != '\0' && wrong == NULL; number++) {
        size_t n = strcspn(text, "\n");

        if (n >= sizeof(line)) {
            wrong = "too long";
        } else {
            memcpy(line, text, n);
            line[n] = '\0';
            wrong = parse_line(plan, line);
        }
        text += n + (text[n] == '\n');
    }
    if (wrong != NULL)
        snprintf(why, VB_OPTS_WHY, "line %d: %s", number - 1, wrong);
    else
        *plan_p = *plan;
    free(plan);
    return wrong == NULL ? VB_OK : VB_ERR_INPUT;
}
