/* SPDX-License-Identifier: MIT
 *
 * Guesses what a user meant who has written a name that does not exist.
 */
#include "base/base.h"

#include <string.h>

/* Returns how many letters must be changed, added or removed to turn a into b. If b is too long
 * for the array row, returns the length of b, so that b never counts as similar. */
static int edit_distance(const char *a, const char *b)
{
    int row[64];
    int n = (int)strlen(b), i, j, diagonal, above;

    if (n >= (int)VB_COUNT(row))
        return n;
    for (j = 0; j <= n; j++)
        row[j] = j;
    for (i = 0; a[i] != '\0'; i++) {
        diagonal = row[0];
        row[0] = i + 1;
        for (j = 0; j < n; j++) {
            above = row[j + 1];
            row[j + 1] = diagonal + (a[i] != b[j]);
            if (above + 1 < row[j + 1])
                row[j + 1] = above + 1;
            if (row[j] + 1 < row[j + 1])
                row[j + 1] = row[j] + 1;
            diagonal = above;
        }
    }
    return row[n];
}

const char *vb_nearest(const char *text, const char *const *candidates, int n)
{
    const char *best = NULL;
    int len = (int)strlen(text), limit, distance, i;

    limit = len < 6 ? 2 : len / 3;
    if (limit >= len)
        limit = len - 1;
    for (i = 0; i < n; i++) {
        distance = edit_distance(text, candidates[i]);
        if (distance <= limit) {
            best = candidates[i];
            limit = distance - 1;
        }
    }
    return best;
}

/* Names that other programs have for the same. */
static const char *other_word(const char *name)
{
    static const char *const words[][2] = {
        {"learning-rate", "lr"}, {"optimizer", "rule"},  {"dataset", "data"},
        {"workers", "ranks"},    {"nproc", "ranks"},     {"np", "ranks"},
        {"nodes", "hosts"},      {"hostfile", "hosts"},  {"host", "hosts"},
        {"output", "run"},       {"log-dir", "run"},     {"save", "checkpoint"},
        {"iterations", "steps"}, {"max-steps", "steps"}, {"num-epochs", "epochs"},
        {"verbose", "log-level"}};
    size_t i;

    for (i = 0; i < VB_COUNT(words); i++)
        if (strcmp(words[i][0], name) == 0)
            return words[i][1];
    return NULL;
}

const char *vb_nearest_option(const char *name, const char *const *names, int n)
{
    const char *best = NULL, *word = other_word(name);
    size_t len, most = 3;
    int i;

    for (i = 0; i < n; i++) {
        if (word != NULL && strcmp(names[i], word) == 0)
            return names[i];
        len = strlen(names[i]);
        if (len > most && strncmp(name, names[i], len) == 0) {
            most = len;
            best = names[i];
        }
    }
    word = vb_nearest(name, names, n);
    return word != NULL ? word : best;
}
