/* SPDX-License-Identifier: MIT
 *
 * What to type if a host cannot be used. ssh and the shell on the host say in their own words what
 * failed; this table knows the usual ones, why they happen and what helps.
 */
#include "launch/supervise/supervise_priv.h"

#include <string.h>

/* In `fix`, %h stands for the host as the user wrote it, %n for its name without the user, and %p
 * for the program. */
static const struct vb_remedy remedies[] = {
    {"Host key verification failed",
     "its host key is not in known_hosts, or is not the one that is there",
     {"ssh-keyscan -H %n >>~/.ssh/known_hosts   # after ssh-keygen -R %n, if the host was "
      "installed anew",
      NULL}},
    {"Permission denied (",
     "ssh would ask for a password, which a job cannot answer",
     {"ssh-copy-id %h   # after ssh-keygen -t ed25519, if there is no key yet",
      "ssh -o BatchMode=yes %h true   # must end without a question; ssh-add unlocks a key"}},
    {"Could not resolve hostname",
     "this host knows no address for the name",
     {"getent hosts %n   # add \"ADDRESS %n\" to /etc/hosts, or give --hosts the address", NULL}},
    {"Connection refused",
     "the host is up, but no sshd listens there",
     {"on %n: sudo apt install openssh-server && sudo systemctl start ssh", NULL}},
    {"No route to host",
     "it is down, or its address is wrong",
     {"ping -c 3 %n   # or leave the host out of --hosts", NULL}},
    {"Network is unreachable",
     "no interface of this host leads to its network",
     {"ip route get \"$(getent ahosts %n | awk '{ print $1; exit }')\"", NULL}},
    {"timed out",
     "it is down, or a firewall drops the connection",
     {"ping -c 3 %n   # if it answers, on %n: sudo nft list ruleset", NULL}},
    {"could not execute",
     "there is no such ssh command on this host",
     {"sudo apt install openssh-client   # or name the command with --ssh", NULL}},
    {"there is no program",
     "the program is missing there",
     {"scp %p %h:%p   # or say with --program PATH where it is on the hosts", NULL}},
    {"error while loading shared libraries",
     "a package is missing there",
     {"ssh %h 'ldd %p | grep not.found'   # install the packages of these libraries there", NULL}},
    {"its architecture is",
     "all hosts of a job need processors of one architecture",
     {"ssh %h uname -m   # leave the host out of --hosts", NULL}},
};

const struct vb_remedy *vb_remedy_find(const char *said)
{
    size_t i;

    for (i = 0; i < VB_COUNT(remedies); i++)
        if (strstr(said, remedies[i].says) != NULL)
            return &remedies[i];
    return NULL;
}

static size_t add(char *text, size_t size, size_t len, const char *part, size_t n)
{
    if (n > size - 1 - len)
        n = size - 1 - len;
    memcpy(text + len, part, n);
    text[len + n] = '\0';
    return len + n;
}

void vb_remedy_fill(const char *fix, const char *host, const char *program, char *text, size_t size)
{
    const char *at = strrchr(host, '@'), *name = at != NULL ? at + 1 : host, *value;
    size_t len = 0, n;

    text[0] = '\0';
    while (*fix != '\0') {
        n = strcspn(fix, "%");
        len = add(text, size, len, fix, n);
        fix += n;
        if (*fix == '\0')
            return;
        value = fix[1] == 'h' ? host : fix[1] == 'n' ? name : program;
        len = add(text, size, len, value, strlen(value));
        fix += 2;
    }
}
