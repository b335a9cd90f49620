/* SPDX-License-Identifier: MIT
 *
 * Fuzzes data specs of the command line.
 *
 * Covers: data/spec.c
 */
#include "data/data.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size), why[VB_OPTS_WHY] = "";
    struct vb_data_spec spec;
    vb_status st = vb_data_spec_parse(text, &spec, why);

    if (st == VB_OK && spec.format == VB_DATA_SYNTH &&
        (spec.n_train < 1 || spec.n_test < 1 || spec.features < 0))
        abort();
    if (st != VB_OK && why[0] == '\0')
        abort();
    free(text);
    return 0;
}
