/* SPDX-License-Identifier: MIT
 *
 * verbena eval: computes accuracy and loss of a checkpoint.
 */
#include "cli/cli.h"

struct eval_args {
    const char *data;
    bool json;
};

#define FIELD(name) offsetof(struct eval_args, name)

static const struct vb_opt eval_opts[] = {
    {"data", VB_OPT_TEXT, FIELD(data), .arg = "SPEC",
     .help = "data to evaluate on, in the same notation as for train; if it has a test part, that "
             "is used; by default the data that the checkpoint was trained on"},
    {"json", VB_OPT_FLAG, FIELD(json), .help = "print one JSON object instead of text"},
};

static vb_status print(const struct vb_eval_result *r, const char *path, bool json)
{
    struct vb_json *j;

    if (!json) {
        printf("%s at step %lld: accuracy %.2f %% of %d samples of %s, loss %.4f\n", r->model,
               (long long)r->step, 100 * r->accuracy, r->samples, r->data, r->loss);
        return VB_OK;
    }
    j = cli_json_object();
    vb_json_text(j, "checkpoint", path);
    vb_json_text(j, "model", r->model);
    vb_json_int(j, "steps", r->step);
    cli_json_view(j, &r->view);
    vb_json_real(j, "accuracy", r->accuracy);
    vb_json_real(j, "loss", r->loss);
    vb_json_int(j, "test_samples", r->samples);
    vb_json_text(j, "data", r->data);
    vb_json_real(j, "eval_s", r->seconds);
    return cli_print_json(j);
}

static int run(const struct cli_command *command, int argc, char **argv)
{
    struct eval_args args;
    struct vb_opt_group groups[] = {{"Options", eval_opts, VB_COUNT(eval_opts), &args}};
    char path[PATH_MAX], why[VB_OPTS_WHY];
    struct vb_eval_opts opts = {0};
    struct vb_eval_result result;
    struct vb_opts parsed;
    vb_status st;
    int rc = cli_parse(command, groups, VB_COUNT(groups), 1, argc, argv, &parsed);

    if (rc >= 0)
        return rc;
    if (parsed.n_operands == 0)
        return cli_refuse(
            &cli_eval, "the checkpoint is missing: name a .vbc file or a folder with checkpoints");
    if (args.data != NULL && vb_data_spec_parse(args.data, &opts.data, why) != VB_OK)
        return cli_refuse(&cli_eval, "%s", why);
    opts.data_text = args.data;
    st = cli_find_checkpoint(parsed.operands[0], path);
    if (st == VB_OK)
        st = vb_eval(path, &opts, &result);
    if (st == VB_OK)
        st = print(&result, path, args.json);
    return cli_finish(cli_exit_code(st));
}

const struct cli_command cli_eval = {
    .name = "eval",
    .summary = "compute accuracy and loss of a checkpoint",
    .usage = "CHECKPOINT [--data SPEC] [--json]",
    .about =
        "Evaluates the parameters of CHECKPOINT on test data. CHECKPOINT is a .vbc file, or a\n"
        "folder, whose latest checkpoint is used.\n"
        "\n"
        "  verbena eval runs/lenet --data mnist:DIR",
    .run = run,
};
