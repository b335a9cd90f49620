/* SPDX-License-Identifier: MIT
 *
 * Runs gnuplot, with a deadline.
 */
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TIMEOUT_MS 60000 /* timeout for one run of gnuplot */
#define POLL_MS 5

/* Waits for gnuplot, and kills it after TIMEOUT_MS. */
static vb_status await(pid_t pid)
{
    struct timespec pause = {.tv_nsec = POLL_MS * 1000000L};
    int waited, status = 0;
    pid_t got = 0;

    for (waited = 0; got == 0 && waited < TIMEOUT_MS; waited += POLL_MS) {
        got = waitpid(pid, &status, WNOHANG);
        if (got == 0)
            nanosleep(&pause, NULL);
    }
    if (got == 0) {
        kill(pid, SIGKILL);
        (void)waitpid(pid, &status, 0);
        return vb_err(VB_ERR_TIMEOUT, "gnuplot did not end within %d s", TIMEOUT_MS / 1000);
    }
    if (got < 0)
        return vb_err_sys("waitpid");
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return vb_err(VB_ERR_IO, "gnuplot failed");
    return VB_OK;
}

/* The environment with a locale of UTF-8. In another one gnuplot complains at each "set encoding",
 * and a shell over ssh often has none. Free the array only; its texts are borrowed. */
static char **utf8_environment(void)
{
    static char utf8[] = "LC_ALL=C.UTF-8";
    size_t n = 0, i, kept = 0;
    char **list;

    while (environ[n] != NULL)
        n++;
    list = calloc(n + 2, sizeof(*list));
    if (list == NULL)
        return NULL;
    for (i = 0; i < n; i++)
        if (strncmp(environ[i], "LC_ALL=", 7) != 0)
            list[kept++] = environ[i];
    list[kept] = utf8;
    return list;
}

static vb_status run_gnuplot(char *const argv[], int in, int out)
{
    char **environment = utf8_environment();
    posix_spawn_file_actions_t files;
    pid_t pid;
    int err;

    if (environment == NULL)
        return vb_err_sys("calloc");
    err = posix_spawn_file_actions_init(&files);
    if (err == 0)
        err = posix_spawn_file_actions_adddup2(&files, in, STDIN_FILENO);
    if (err == 0)
        err = posix_spawn_file_actions_adddup2(&files, out, STDOUT_FILENO);
    if (err == 0)
        err = posix_spawnp(&pid, "gnuplot", &files, NULL, argv, environment);
    posix_spawn_file_actions_destroy(&files);
    free(environment);
    if (err == ENOENT)
        return VB_ERR_NO_FILE;
    if (err != 0) {
        errno = err;
        return vb_err_sys("cannot start gnuplot");
    }
    return await(pid);
}

vb_status cli_gnuplot(int in, int out)
{
    static char name[] = "gnuplot";
    char *argv[] = {name, NULL};

    return run_gnuplot(argv, in, out);
}

bool cli_gnuplot_there(void)
{
    static char name[] = "gnuplot", version[] = "--version";
    char *argv[] = {name, version, NULL};
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    bool there;

    if (null < 0)
        return false;
    there = run_gnuplot(argv, null, null) == VB_OK;
    close(null);
    return there;
}
