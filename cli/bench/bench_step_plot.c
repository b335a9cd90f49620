/* SPDX-License-Identifier: MIT
 *
 * Draws the points of bench step with gnuplot. gnuplot reads the script from its standard input and
 * writes the picture to its standard output, which is memory. So no file name has to be quoted.
 */
#include "cli/bench/cmd_bench.h"

#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct kind {
    const char *end;      /* end of the file's name */
    const char *terminal; /* gnuplot's name of the format; NULL: the script is written */
};

static const struct kind kinds[] = {
    {".png", "png size 900,600"},
    {".svg", "svg size 900,600"},
    {".pdf", "pdfcairo"},
    {".gp", NULL},
};

static const struct kind *kind_of(const char *path)
{
    size_t len = strlen(path), i;

    for (i = 0; i < VB_COUNT(kinds); i++) {
        size_t n = strlen(kinds[i].end);

        if (len > n && strcmp(path + len - n, kinds[i].end) == 0)
            return &kinds[i];
    }
    return NULL;
}

/* ---- files before the bench ------------------------------------------------------------------ */

static vb_status look_for_gnuplot(void)
{
    if (cli_gnuplot_there())
        return VB_OK;
    return vb_err(VB_ERR_NO_FILE,
                  "--plot needs gnuplot, which is not installed: run apt-get install "
                  "gnuplot-nox, or use --plot FILE.gp, which needs no gnuplot");
}

int cli_step_plot_check(const char *path)
{
    const struct kind *kind = kind_of(path);
    bool there = access(path, F_OK) == 0;
    vb_status st;
    int fd;

    if (kind == NULL)
        return cli_refuse(&cli_bench, "--plot %.64s: must end in .png, .svg, .pdf or .gp", path);
    st = vb_file_may_replace(path);
    if (st == VB_OK && kind->terminal != NULL)
        st = look_for_gnuplot();
    if (st != VB_OK)
        return cli_exit_code(st);
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
    if (fd < 0)
        return cli_exit_code(vb_err_sys("cannot write %s", path));
    close(fd);
    if (!there)
        unlink(path);
    return -1;
}

/* ---- the script ------------------------------------------------------------------------------ */

struct range {
    double x_min, x_max, y_min, y_max; /* above 0, because the axes are logarithmic */
    bool exposed; /* any exposed time is above 0; gnuplot warns about a line without such a point */
};

static void widen(struct range *range, double y)
{
    if (y <= 0)
        return;
    range->y_min = fmin(range->y_min, y);
    range->y_max = fmax(range->y_max, y);
}

static struct range range_of(const struct vb_step_result *r)
{
    struct range range = {.x_min = INFINITY, .y_min = INFINITY};
    int i;

    for (i = 0; i < r->n; i++) {
        const struct vb_step_point *p = &r->points[i];

        range.x_min = fmin(range.x_min, p->batch);
        range.x_max = fmax(range.x_max, p->batch);
        widen(&range, p->compute_ms);
        widen(&range, p->transfer_ms);
        widen(&range, p->exposed_ms);
        widen(&range, p->step_ms);
        range.exposed = range.exposed || p->exposed_ms > 0;
    }
    return range;
}

static void write_script(FILE *f, const char *terminal, const char *model,
                         const struct vb_step_result *r)
{
    int64_t from = r->ranks > 1 ? vb_step_hidden_from(r->points, r->n) : 0;
    struct range range = range_of(r);
    const struct vb_step_point *p;

    if (terminal != NULL)
        fprintf(f, "set terminal %s\n", terminal);
    fprintf(f, "set title \"a step of %s over %s, %d rank%s\" noenhanced\n", model, r->transport,
            r->ranks, r->ranks == 1 ? "" : "s");
    fprintf(f, "set xlabel \"batch of a rank\"\nset ylabel \"ms\"\nset logscale xy\n");
    fprintf(f, "set key top left\nset grid\nset xrange [%g:%g]\nset yrange [%g:%g]\n",
            range.x_min / 1.5, range.x_max * 1.5, range.y_min / 2, range.y_max * 2);
    if (from > 0 && (double)from >= range.x_min / 1.5 && (double)from <= range.x_max * 1.5)
        fprintf(f,
                "set arrow from %lld, graph 0 to %lld, graph 1 nohead dashtype 2\n"
                "set label \" from %lld on\" at %lld, graph 0.03\n",
                (long long)from, (long long)from, (long long)from, (long long)from);
    fprintf(f, "# batch compute_ms transfer_ms exposed_ms step_ms bytes\n$points << END\n");
    for (p = r->points; p < r->points + r->n; p++)
        fprintf(f, "%d %.6g %.6g %.6g %.6g %lld\n", p->batch, p->compute_ms, p->transfer_ms,
                p->exposed_ms, p->step_ms, (long long)p->bytes);
    fprintf(f, "END\n");
    fprintf(f, "plot $points using 1:2 with linespoints title \"compute\"");
    if (r->ranks > 1)
        fprintf(f, ", $points using 1:3 with linespoints title \"transfer alone\"");
    if (range.exposed)
        fprintf(f, ", $points using 1:4 with linespoints title \"exposed\"");
    fprintf(f, ", $points using 1:5 with linespoints title \"step\"\n");
}

/* ---- files ----------------------------------------------------------------------------------- */

struct script {
    const char *model;
    const struct vb_step_result *r;
};

static vb_status print_script(const void *arg, FILE *out)
{
    const struct script *script = arg;

    write_script(out, NULL, script->model, script->r);
    return VB_OK;
}

static vb_status keep_script(const char *path, const char *model, const struct vb_step_result *r)
{
    struct script script = {model, r};

    return vb_file_print(path, print_script, &script, NULL);
}

/* Copies the picture from memory to the file. */
static vb_status keep_plot(const char *path, int drawn)
{
    off_t len = lseek(drawn, 0, SEEK_END);
    vb_status st;
    void *map;

    if (len <= 0)
        return vb_err(VB_ERR_IO, "gnuplot did not draw anything for %s", path);
    map = mmap(NULL, (size_t)len, PROT_READ, MAP_SHARED, drawn, 0);
    if (map == MAP_FAILED)
        return vb_err_sys("cannot map the output of gnuplot");
    st = vb_file_replace(path, map, (size_t)len);
    munmap(map, (size_t)len);
    return st;
}

/* Draws into memory first, because gnuplot does not notice a full disk. */
static vb_status draw(const char *path, FILE *script, int drawn)
{
    vb_status st;

    if (fflush(script) != 0 || fseek(script, 0, SEEK_SET) != 0)
        return vb_err_sys("cannot write a script for gnuplot");
    st = cli_gnuplot(fileno(script), drawn);
    return st == VB_OK ? keep_plot(path, drawn) : st;
}

vb_status cli_step_plot(const char *path, const char *model, const struct vb_step_result *r)
{
    const struct kind *kind = kind_of(path);
    FILE *script;
    vb_status st;
    int drawn;

    if (kind == NULL || kind->terminal == NULL)
        return keep_script(path, model, r);
    script = tmpfile();
    drawn = memfd_create("plot", MFD_CLOEXEC);
    if (script == NULL || drawn < 0) {
        st = vb_err_sys("cannot write %s", path);
    } else {
        write_script(script, kind->terminal, model, r);
        st = draw(path, script, drawn);
    }
    if (drawn >= 0)
        close(drawn);
    if (script != NULL)
        fclose(script);
    return st;
}
