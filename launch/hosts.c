/* SPDX-License-Identifier: MIT
 *
 * The hosts of a job: "a,b:2,c" on the command line, or a file with one host per line. Names become
 * arguments of ssh, so only valid names are accepted, which cannot be mistaken for options.
 */
#include "launch/launch.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define HOST_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_@%:"
#define WHERE 320 /* size of the text "FILE:LINE: ", with the terminating zero */

/* `where` is "FILE:LINE: ", or "" for the command line. */
static vb_status refuse(const char *where, const char *text, const char *why)
{
    return vb_err(VB_ERR_USAGE, "%s\"%.64s\" is not a host: %s", where, text, why);
}

static bool parse_slots(const char *text, int *slots_p)
{
    int64_t n;

    if (!isdigit((unsigned char)text[0]) || !vb_parse_int(text, &n) || n < 1 || n > VB_WORLD_MAX)
        return false;
    *slots_p = (int)n;
    return true;
}

bool vb_host_is_name(const char *name)
{
    const char *at = strrchr(name, '@');

    if (name[0] == '-' || name[strspn(name, HOST_CHARS)] != '\0')
        return false;
    return at == NULL ? name[0] != '\0' : at[1] != '\0' && at[1] != '-' && at != name;
}

/* Splits "[V6]:2", "user@[V6]" or "name:2" into name and number of ranks. */
static vb_status parse_host(const char *where, const char *text, struct vb_host *host)
{
    const char *open = strchr(text, '['), *close = strchr(text, ']'), *colon;
    int len;

    host->slots = 1;
    if (open != NULL && close != NULL && open < close) {
        len = snprintf(host->name, sizeof(host->name), "%.*s%.*s", (int)(open - text), text,
                       (int)(close - open - 1), open + 1);
        colon = close + 1;
    } else {
        colon = strchrnul(text, ':');
        len = snprintf(host->name, sizeof(host->name), "%.*s", (int)(colon - text), text);
    }
    if ((size_t)len >= sizeof(host->name))
        return refuse(where, text, "too long");
    if (*colon != '\0' && (*colon != ':' || !parse_slots(colon + 1, &host->slots)))
        return refuse(where, text,
                      "after the colon comes the number of ranks, such as a:2; put an IPv6 "
                      "address in brackets");
    return vb_host_is_name(host->name)
               ? VB_OK
               : refuse(where, text, "must be NAME, NAME:RANKS or USER@NAME");
}

vb_status vb_host_parse(const char *text, struct vb_host *host_p)
{
    memset(host_p, 0, sizeof(*host_p));
    return parse_host("", text, host_p);
}

static vb_status add(struct vb_hosts *hosts, const char *where, const char *text)
{
    struct vb_host host, *list;
    int i;
    vb_status st = parse_host(where, text, &host);

    if (st != VB_OK)
        return st;
    for (i = 0; i < hosts->n; i++)
        if (strcmp(hosts->list[i].name, host.name) == 0)
            return vb_err(VB_ERR_USAGE,
                          "%shost %s is listed twice: write %s:2 to start two ranks on this host",
                          where, host.name, host.name);
    if (hosts->ranks + host.slots > VB_WORLD_MAX)
        return vb_err(VB_ERR_USAGE, "%sthe hosts have more than %d ranks together", where,
                      VB_WORLD_MAX);
    list = realloc(hosts->list, ((size_t)hosts->n + 1) * sizeof(*list));
    if (list == NULL)
        return vb_err_sys("realloc");
    hosts->list = list;
    host.first_rank = hosts->ranks;
    hosts->ranks += host.slots;
    list[hosts->n++] = host;
    return VB_OK;
}

struct reading {
    struct vb_hosts *hosts;
    const char *path;
    int line;
    vb_status st;
};

/* A line is "NAME[:RANKS]" or, as for Open MPI, "NAME slots=RANKS". A comment begins with #. */
static bool take_line(char *line, void *arg)
{
    char text[VB_LINE + 16], where[WHERE], *name, *slots, *rest = NULL;
    struct reading *r = arg;

    r->line++;
    line[strcspn(line, "#\r")] = '\0';
    name = strtok_r(line, " \t", &rest);
    if (name == NULL)
        return true;
    slots = strtok_r(NULL, " \t", &rest);
    if (slots != NULL && strncmp(slots, "slots=", 6) == 0)
        snprintf(text, sizeof(text), "%s:%s", name, slots + 6);
    else if (slots != NULL)
        snprintf(text, sizeof(text), "%s %s", name, slots);
    else
        snprintf(text, sizeof(text), "%s", name);
    snprintf(where, sizeof(where), "%.256s:%d: ", r->path, r->line);
    r->st = add(r->hosts, where, text);
    return r->st == VB_OK;
}

static bool is_file(const char *text)
{
    struct stat sb;

    return strchr(text, '/') != NULL ||
           (strchr(text, ',') == NULL && stat(text, &sb) == 0 && S_ISREG(sb.st_mode));
}

static vb_status from_file(const char *path, struct vb_hosts *hosts)
{
    struct reading r = {.hosts = hosts, .path = path, .st = VB_OK};
    struct stat sb;

    if (stat(path, &sb) != 0)
        return vb_err_sys("hosts in %.256s", path);
    if (!S_ISREG(sb.st_mode))
        return vb_err(VB_ERR_USAGE, "cannot read hosts from %.256s: this is not a file", path);
    vb_probe_lines(take_line, &r, "%s", path);
    if (r.st == VB_OK && hosts->n == 0)
        return vb_err(VB_ERR_USAGE, "%.256s lists no host", path);
    return r.st;
}

static vb_status from_list(const char *text, struct vb_hosts *hosts)
{
    char one[VB_HOST_NAME + 16];
    vb_status st = VB_OK;
    size_t len;

    do {
        len = strcspn(text, ",");
        if (len >= sizeof(one))
            return refuse("", text, "too long");
        memcpy(one, text, len);
        one[len] = '\0';
        st = add(hosts, "", one);
        text += len;
    } while (st == VB_OK && *text++ == ',');
    return st;
}

vb_status vb_hosts_parse(const char *text, struct vb_hosts *hosts_p)
{
    struct vb_hosts hosts = {.list = NULL};
    vb_status st = is_file(text) ? from_file(text, &hosts) : from_list(text, &hosts);

    if (st != VB_OK) {
        vb_hosts_fini(&hosts);
        return st;
    }
    *hosts_p = hosts;
    return VB_OK;
}

void vb_hosts_fini(struct vb_hosts *hosts)
{
    free(hosts->list);
    memset(hosts, 0, sizeof(*hosts));
}

const struct vb_host *vb_hosts_of_rank(const struct vb_hosts *hosts, int rank)
{
    int i;

    for (i = 0; i < hosts->n; i++)
        if (rank < hosts->list[i].first_rank + hosts->list[i].slots)
            return &hosts->list[i];
    return NULL;
}
