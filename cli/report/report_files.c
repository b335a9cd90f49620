/* SPDX-License-Identifier: MIT
 *
 * The files beside the page: each plot as SVG, PNG and CSV, each table as CSV. gnuplot draws all
 * PNG files in one run.
 */
#include "cli/report/cmd_report.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- where it goes --------------------------------------------------------------------------- */

static vb_status check_page(struct report_out *out, const char *path)
{
    size_t len = strlen(path);
    struct stat info;

    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode)) {
        snprintf(out->page, sizeof(out->page), "%.*s/report.html", PATH_MAX - 16, path);
        return VB_OK;
    }
    if (len < 6 || len >= PATH_MAX - 16 || strcmp(path + len - 5, ".html") != 0)
        return vb_err(VB_ERR_INPUT, "--out %.200s: must end in .html, or be a folder", path);
    snprintf(out->page, sizeof(out->page), "%s", path);
    return VB_OK;
}

/* A page called report.html has folders plots and tables; others have their name in front. */
static void name_folders(struct report_out *out)
{
    const char *slash = strrchr(out->page, '/'), *name = slash != NULL ? slash + 1 : out->page;
    int len = (int)strlen(name) - 5;
    bool usual = len == 6 && strncmp(name, "report", 6) == 0;

    snprintf(out->folder, sizeof(out->folder), "%.*s",
             slash == NULL        ? 1
             : slash == out->page ? 1
                                  : (int)(slash - out->page),
             slash == NULL ? "." : out->page);
    snprintf(out->plots, sizeof(out->plots), "%.*s%splots",
             usual       ? 0
             : len < 200 ? len
                         : 200,
             name, usual ? "" : "-");
    snprintf(out->tables, sizeof(out->tables), "%.*s%stables",
             usual       ? 0
             : len < 200 ? len
                         : 200,
             name, usual ? "" : "-");
}

static vb_status make_folder(const struct report_out *out, const char *name)
{
    char path[PATH_MAX + NAME_MAX + 2];

    snprintf(path, sizeof(path), "%s/%s", out->folder, name);
    return vb_dir_make(path);
}

vb_status report_out_init(struct report_out *out, const char *path, const struct report *report)
{
    vb_status st;

    *out = (struct report_out){0};
    if (path == NULL && report->n_runs > 1)
        path = "report.html";
    st = check_page(out, path != NULL ? path : report->runs[0]->top.dir);
    if (st != VB_OK)
        return st;
    name_folders(out);
    st = vb_file_may_replace(out->page);
    if (st == VB_OK)
        st = make_folder(out, out->plots);
    return st == VB_OK ? make_folder(out, out->tables) : st;
}

/* ---- plots and tables ------------------------------------------------------------------------ */

static void path_of(const struct report_out *out, const char *folder, const char *name,
                    const char *end, char path[2 * PATH_MAX])
{
    snprintf(path, (size_t)2 * PATH_MAX, "%s%s/%s/%s.%s",
             out->folder[0] == '/' || out->folder[0] == '.' ? "" : "./", out->folder, folder, name,
             end);
}

static vb_status print_svg(const void *plot, FILE *out)
{
    fprintf(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    vb_plot_svg(plot, &vb_svg_file, out);
    return VB_OK;
}

static vb_status print_plot_csv(const void *plot, FILE *out)
{
    vb_plot_csv(plot, out);
    return VB_OK;
}

static vb_status print_table_csv(const void *table, FILE *out)
{
    vb_table_csv(table, out);
    return VB_OK;
}

static vb_status print_line_svg(const void *line, FILE *out)
{
    report_trace_svg(line, out);
    return VB_OK;
}

static vb_status write_plot(const struct vb_plot *plot, struct report_out *out)
{
    char path[2 * PATH_MAX];
    vb_status st;

    path_of(out, out->plots, plot->name, "svg", path);
    st = vb_file_print(path, print_svg, plot, NULL);
    if (st != VB_OK)
        return st;
    out->n_svg++;
    path_of(out, out->plots, plot->name, "csv", path);
    st = vb_file_print(path, print_plot_csv, plot, NULL);
    out->n_csv += st == VB_OK ? 1 : 0;
    return st;
}

static vb_status write_tables(const struct report *report, struct report_out *out)
{
    char path[2 * PATH_MAX];
    vb_status st = VB_OK;
    int i;

    for (i = 0; i < report->n_tables && st == VB_OK; i++) {
        path_of(out, out->tables, report->tables[i].table->name, "csv", path);
        st = vb_file_print(path, print_table_csv, report->tables[i].table, NULL);
        out->n_csv += st == VB_OK ? 1 : 0;
    }
    return st;
}

/* ---- PNG ------------------------------------------------------------------------------------- */

/* Calls fn for the path of each PNG file. */
static void each_png(const struct report *report, struct report_out *out,
                     void (*fn)(const struct report *report, struct report_out *out,
                                const struct vb_plot *plot, const char *path, FILE *script),
                     FILE *script)
{
    char path[2 * PATH_MAX];
    int i, k;

    for (i = 0; i < report->n_figures; i++)
        for (k = 0; k < report->figures[i].n; k++) {
            path_of(out, out->plots, report->figures[i].plots[k]->name, "png", path);
            fn(report, out, report->figures[i].plots[k], path, script);
        }
    if (report->line.n > 0) {
        path_of(out, out->plots, "timeline", "png", path);
        fn(report, out, NULL, path, script);
    }
}

static void script_png(const struct report *report, struct report_out *out,
                       const struct vb_plot *plot, const char *path, FILE *script)
{
    (void)out;
    (void)unlink(path); /* gnuplot would write through a link */
    if (plot != NULL)
        vb_plot_gnuplot(plot, path, script);
    else
        report_trace_gnuplot(&report->line, path, script);
}

/* gnuplot does not notice a full disk: a file without its end does not count. */
static void check_png(const struct report *report, struct report_out *out,
                      const struct vb_plot *plot, const char *path, FILE *script)
{
    static const char end[] = "IEND\xae"
                              "B`\x82";
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    char last[8];

    (void)report;
    (void)script;
    if (fd >= 0 && lseek(fd, -8, SEEK_END) >= 0 && read(fd, last, 8) == 8 &&
        memcmp(last, end, 8) == 0)
        out->n_png++;
    else
        snprintf(out->no_png, sizeof(out->no_png), "gnuplot did not draw %s.png",
                 plot != NULL ? plot->name : "timeline");
    if (fd >= 0)
        close(fd);
}

/* A machine without gnuplot gets no PNG files; that is no error. */
static vb_status write_png(const struct report *report, struct report_out *out)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    FILE *script = tmpfile();
    vb_status st = VB_OK;

    if (null < 0 || script == NULL) {
        st = vb_err_sys("cannot write a script for gnuplot");
    } else {
        each_png(report, out, script_png, script);
        if (fflush(script) != 0 || fseek(script, 0, SEEK_SET) != 0)
            st = vb_err_sys("cannot write a script for gnuplot");
    }
    if (st == VB_OK)
        st = cli_gnuplot(fileno(script), null);
    if (st == VB_OK)
        each_png(report, out, check_png, script);
    else
        snprintf(out->no_png, sizeof(out->no_png), "%s",
                 st == VB_ERR_NO_FILE ? "gnuplot is not installed: run apt-get install gnuplot-nox"
                                      : "gnuplot failed");
    if (null >= 0)
        close(null);
    if (script != NULL)
        fclose(script);
    return VB_OK;
}

vb_status report_write_files(const struct report *report, struct report_out *out, bool png)
{
    char path[2 * PATH_MAX];
    vb_status st = VB_OK;
    int i, k;

    for (i = 0; i < report->n_figures && st == VB_OK; i++)
        for (k = 0; k < report->figures[i].n && st == VB_OK; k++)
            st = write_plot(report->figures[i].plots[k], out);
    if (st == VB_OK && report->line.n > 0) {
        path_of(out, out->plots, "timeline", "svg", path);
        st = vb_file_print(path, print_line_svg, &report->line, NULL);
        out->n_svg += st == VB_OK ? 1 : 0;
    }
    if (st == VB_OK)
        st = write_tables(report, out);
    if (!png)
        snprintf(out->no_png, sizeof(out->no_png), "--no-png");
    return st == VB_OK && png ? write_png(report, out) : st;
}
