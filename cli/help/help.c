/* SPDX-License-Identifier: MIT
 *
 * Finds the form of help that was asked for, and what completion can offer as a value.
 */
#include "cli/help/help.h"

#include <string.h>

bool cli_help_print(const struct cli_command *command, const struct vb_opt_group *groups,
                    int n_groups, const char *how)
{
    static const struct {
        const char *how;
        void (*print)(const struct help_page *page);
    } forms[] = {
        {CLI_HELP_MAN, cli_help_man},
        {CLI_HELP_BASH, cli_help_bash},
        {CLI_HELP_ZSH, cli_help_zsh},
    };
    const struct help_page page = {command, groups, n_groups};
    size_t i;

    for (i = 0; i < VB_COUNT(forms); i++) {
        if (strcmp(how, forms[i].how) == 0) {
            forms[i].print(&page);
            return true;
        }
    }
    return false;
}

const struct vb_opt *cli_help_option(const struct help_page *page, int index)
{
    const struct vb_opt *opt;
    int g, i;

    for (g = 0; g < page->n_groups; g++) {
        for (i = 0; i < page->groups[g].n_opts; i++) {
            opt = &page->groups[g].opts[i];
            if (opt->level != VB_OPT_HIDDEN && index-- == 0)
                return opt;
        }
    }
    return NULL;
}

/* Texts are files, unless the name of the value in help texts says something else. */
static enum help_offer offer_of_text(const char *arg)
{
    static const struct {
        const char *arg;
        enum help_offer offer;
    } known[] = {
        {"DIR", OFFER_FOLDERS},       {"RUN", OFFER_FOLDERS},     {"LIST", OFFER_NOTHING},
        {"HOST:PORT", OFFER_NOTHING}, {"FROM:TO", OFFER_NOTHING}, {"CONDITION", OFFER_NOTHING},
    };
    size_t i;

    for (i = 0; i < VB_COUNT(known); i++)
        if (strcmp(arg, known[i].arg) == 0)
            return known[i].offer;
    return OFFER_FILES;
}

struct help_value cli_help_value(const struct vb_opt *opt)
{
    struct help_value value = {.offer = OFFER_NOTHING};
    struct cli_names *words = &value.words;

    if (opt->type == VB_OPT_CHOICE) {
        value.offer = OFFER_WORDS;
        while (words->n < CLI_NAMES_MAX && opt->choices[words->n] != NULL) {
            words->list[words->n] = opt->choices[words->n];
            words->n++;
        }
    } else if (opt->type == VB_OPT_TEXT && strcmp(opt->arg, "MODEL") == 0) {
        value.offer = OFFER_WORDS;
        *words = cli_model_names(true);
    } else if (opt->type == VB_OPT_TEXT) {
        value.offer = offer_of_text(opt->arg);
    }
    return value;
}
