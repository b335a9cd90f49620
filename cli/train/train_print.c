/* SPDX-License-Identifier: MIT
 *
 * The output of verbena train: the result as text, and one line of progress during the training.
 */
#include "cli/train/cmd_train.h"

#include <math.h>
#include <signal.h>

const char *cli_train_signal(int number)
{
    return number == SIGINT ? "SIGINT" : number == SIGTERM ? "SIGTERM" : "SIGHUP";
}

/* ---- text ------------------------------------------------------------------------------------ */

/* --staleness bounds steps of a worker; a gradient is stale by the steps of all others together. */
static void print_staleness(const struct vb_train_opts *o, const struct vb_train_result *r)
{
    struct vb_stale all = cli_train_stale(r);

    printf("\nstaleness   %.2f gradients of other workers on average, %llu at most",
           all.n > 0 ? (double)all.sum / (double)all.n : 0, (unsigned long long)all.max);
    if (o->async.bounded)
        printf("; --staleness %lld bounds the steps of each of them",
               (long long)o->async.staleness);
    if (all.dropped > 0)
        printf("; %llu dropped", (unsigned long long)all.dropped);
}

static void print_improving(const struct vb_train_result *r)
{
    if (!r->improving.known)
        return;
    printf("improving   %s: training loss %.4f in the last tenth of the steps, %.4f in the tenth "
           "before",
           r->improving.still ? "yes" : "no", r->improving.last, r->improving.before);
    if (r->improving.still)
        printf("; --epochs %.0f would train twice as long", 2 * r->epochs > 1 ? 2 * r->epochs : 1);
    printf("\n");
}

/* A batch much larger than the noise scale hardly learns more from a step (train_noise.h). */
static void print_noise(const struct vb_train_result *r)
{
    if (isnan(r->noise.scale))
        return;
    printf("noise scale %.0f samples, +- %.0f: a global batch of up to about %.0f samples still "
           "pays; this run has %d\n",
           r->noise.scale, r->noise.error, fmax(r->noise.scale, 1), r->global_batch);
}

/* All percentages are of the time without evaluation. The rates leave out checkpoints, too. */
static void print_time(const struct vb_train_result *r)
{
    double all_s = r->train_s - r->phase_s[VB_PHASE_EVAL];
    int p;

    if (r->steps == r->resumed) {
        printf("time        no step was left to train; %.3f s in total", r->wall_s);
        return;
    }
    printf("time        %.3f s of training: %.1f steps/s, %.0f samples/s\n", r->step_s,
           (double)(r->steps - r->resumed) / r->step_s, (double)r->samples / r->step_s);
    printf("also        ");
    if (r->phase_s[VB_PHASE_CHECKPOINT] > 0)
        printf("%.3f s of checkpoints, ", r->phase_s[VB_PHASE_CHECKPOINT]);
    printf("%.3f s of evaluation; %.3f s in total, with the set-up\n", r->phase_s[VB_PHASE_EVAL],
           r->wall_s);
    printf("spent on   ");
    for (p = 0; p < VB_PHASES; p++)
        if (r->phase_s[p] > 0 && p != VB_PHASE_EVAL)
            printf(" %s %.1f %%", p == VB_PHASE_COMM ? "transfer" : vb_phase_str((enum vb_phase)p),
                   100 * r->phase_s[p] / all_s);
    cli_train_print_bottleneck(&r->bottleneck, (double)(r->steps - r->resumed) / r->step_s,
                               (double)r->samples / r->step_s);
}

/* Says what makes the run an experiment, so that nobody takes its figures for those of a run. */
static void print_tools(const struct vb_train_opts *o)
{
    char words[VB_INJECT_TEXT];
    int i;

    if (o->replay != NULL)
        printf("replayed    the ranks did not compute: they slept as long as %s recorded\n",
               o->replay);
    for (i = 0; i < o->inject.n; i++) {
        vb_inject_words(&o->inject.list[i], words);
        printf("injected    %s\n", words);
    }
}

static void print_lost(const struct vb_fault *f)
{
    int p;

    printf("\nat %6.1f s  rank %d (host %s) was %s after step %lld: %s; %d rank%s went on "
           "within %.3f s (ms: ",
           f->at_s, f->rank, f->host, strcmp(f->what, "removed") == 0 ? "removed" : "lost",
           (long long)f->step, f->why, f->left, f->left == 1 ? "" : "s", f->recovered_s);
    for (p = 0; p < VB_RECOVERY_PHASES; p++)
        printf("%s%s %.1f", p > 0 ? ", " : "", vb_recovery_phase_str((enum vb_recovery_phase)p),
               1e3 * f->phase_s[p]);
    printf(")");
    if (f->again > 0)
        printf(" and computed step %lld again", (long long)f->again);
}

static void print_faults(const struct vb_train_result *r)
{
    const struct vb_fault *f;
    int i;

    for (i = 0; i < r->n_faults; i++) {
        f = &r->faults[i];
        if (strcmp(f->what, "checkpoint") == 0)
            printf("\nat %6.1f s  the checkpoint of step %lld was not written: %s", f->at_s,
                   (long long)f->step, f->why);
        else if (f->recovered)
            print_lost(f);
        else
            printf("\nat %6.1f s  rank %d %s after %lld steps: %s", f->at_s, f->rank, f->what,
                   (long long)f->step, f->why);
    }
}

vb_status cli_train_print(const char *mode, const struct vb_train_opts *o,
                          const struct vb_train_result *r, bool json)
{
    if (json) {
        struct vb_json *object = cli_json_object();

        cli_train_json(object, mode, o, r);
        return cli_print_json(object);
    }
    printf("model       %s, %lld parameters\n", o->model, (long long)r->params);
    printf("ranks       %d, %s", r->ranks, mode);
    if (r->transport[0] != '\0')
        printf(" over %s, gradients summed by %s%s", r->transport,
               r->apart ? "servers" : "algorithm ", r->apart ? "" : r->algo);
    if (o->sums.coll.wire == VB_WIRE_BF16 && r->transport[0] != '\0')
        printf(" in bf16");
    if (r->per_rank[0].registered_mb > 0)
        printf(", %.1f MB registered in %.2f ms", r->per_rank[0].registered_mb,
               1e3 * r->per_rank[0].register_s);
    printf("\nsteps       %lld of %d samples, %g epochs, learning rate up to %g\n",
           (long long)r->steps, r->global_batch, r->epochs, r->lr);
    if (o->dry_run) {
        cli_train_print_need(o);
        cli_train_until_print(o, r);
        printf("dry run     nothing was trained; the set-up took %.3f s\n", r->wall_s);
        return VB_OK;
    }
    print_tools(o);
    if (r->resumed > 0)
        printf("resumed     at step %lld\n", (long long)r->resumed);
    if (r->stopped != 0)
        printf("stopped     by %s, after step %lld\n", cli_train_signal(r->stopped),
               (long long)r->steps);
    print_time(r);
    if (r->staleness != NULL)
        print_staleness(o, r);
    print_faults(r);
    if (r->accuracy >= 0)
        printf("\naccuracy    %.2f %% of %d %s samples, loss %.4f\n", 100 * r->accuracy,
               r->test_samples,
               strcmp(cli_train_test_from(o), "training") == 0 ? "training" : "test", r->loss);
    else
        printf("\naccuracy    none: nothing was learnt\n");
    cli_train_until_print(o, r);
    print_improving(r);
    print_noise(r);
    if (r->checkpoint[0] != '\0')
        printf("checkpoint  %s; each took up to %.3f s to write, and paused training for %.1f ms\n",
               r->checkpoint, r->save_s, 1e3 * r->pause_s);
    if (r->params_sha256[0] != '\0')
        printf("parameters  sha256 %s\n", r->params_sha256);
    return VB_OK;
}

/* An asynchronous worker has its own row only. */
static const struct vb_rank_result *own_row(const struct vb_train_result *r, int rank)
{
    int i;

    for (i = 0; i < r->rows; i++)
        if (r->per_rank[i].rank == rank)
            return &r->per_rank[i];
    return &r->per_rank[0];
}

/* The JSON object has some of the keys of the final object, which the rank that reports prints. */
vb_status cli_train_print_joined(const char *root, int rank, const struct vb_train_opts *o,
                                 const struct vb_train_result *r, bool as_json)
{
    const struct vb_rank_result *own = own_row(r, rank);
    struct vb_json *json;

    if (!as_json) {
        printf("joined      the job at %s (%s) as rank %d\n", root, o->model, own->rank);
        printf("trained on  %lld samples in %.3f s; %s at step %lld and reports the result\n",
               (long long)r->samples, r->train_s,
               r->left ? "this worker has left; the job goes on" : "the job ended",
               (long long)r->steps);
        if (r->stopped != 0)
            printf("stopped     by %s\n", cli_train_signal(r->stopped));
        return VB_OK;
    }
    json = cli_json_object();
    vb_json_text(json, "model", o->model);
    vb_json_text(json, "mode", cli_train_modes[o->mode]);
    vb_json_text(json, "joined", root);
    vb_json_int(json, "steps", r->steps);
    vb_json_int(json, "samples", r->samples);
    vb_json_real(json, "train_s", r->train_s);
    vb_json_text(json, "stopped", r->stopped != 0 ? cli_train_signal(r->stopped) : NULL);
    vb_json_bool(json, "left", r->left);
    vb_json_array(json, "per_rank");
    cli_train_json_rank(json, own);
    vb_json_end(json);
    return cli_print_json(json);
}

/* ---- progress -------------------------------------------------------------------------------- */

/* On a terminal, the line after an evaluation stays, but the line after a step is overwritten by
 * the next line. A supervisor receives whole lines; VB_WIPE_LINE marks the lines that the
 * supervisor may overwrite. */
void cli_train_watch(void *screen, const struct vb_train_news *n)
{
    bool supervised = *(const enum cli_screen *)screen == CLI_SUPERVISOR;
    char line[256], test[64] = "", rank[24] = "";
    char loss[40] = "replayed, nothing is learnt";

    if (n->accuracy >= 0)
        snprintf(test, sizeof(test), "; test loss %.4f, accuracy %.2f %%", n->test_loss,
                 100 * n->accuracy);
    if (n->rank >= 0)
        snprintf(rank, sizeof(rank), "rank %d: ", n->rank);
    if (!n->replayed)
        snprintf(loss, sizeof(loss), "training loss %.4f", n->loss);
    snprintf(line, sizeof(line),
             "%sepoch %.2f, step %lld of %lld, %s%s; %.0f samples/s, %.0f s left", rank, n->epoch,
             (long long)n->step, (long long)n->steps, loss, test, n->samples_per_s, n->left_s);
    fprintf(stderr, "%s%s%s", supervised && n->evaluated ? "" : VB_WIPE_LINE, line,
            supervised || n->evaluated ? "\n" : "");
}

void cli_train_watch_end(enum cli_screen screen)
{
    if (screen != CLI_NO_SCREEN)
        fprintf(stderr, VB_WIPE_LINE "%s", screen == CLI_SUPERVISOR ? "\n" : "");
}
