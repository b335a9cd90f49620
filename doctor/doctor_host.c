/* SPDX-License-Identifier: MIT
 *
 * Judges a host among others: whether its name leads to it, whether its kernel has all calls, and
 * whether the programs are there that jobs start.
 */
#include "doctor/doctor_priv.h"

#include <string.h>

static const char *own_address(const struct vb_facts *facts)
{
    const struct vb_iface *iface = vb_net_iface_for_data(facts->ifaces, facts->n_ifaces);
    int i;

    for (i = 0; i < facts->n_ifaces && (iface == NULL || iface->n_addrs == 0); i++)
        if (facts->ifaces[i].kind != VB_IFACE_LOOPBACK && facts->ifaces[i].up &&
            !facts->ifaces[i].control && facts->ifaces[i].n_addrs > 0)
            iface = &facts->ifaces[i];
    return iface != NULL && iface->n_addrs > 0 ? iface->addrs[0] : NULL;
}

/* Debian's installer writes the line "127.0.1.1 NAME". On one host that does no harm. */
static void check_name(const struct vb_facts *facts, struct vb_checks *checks)
{
    struct vb_check *check = vb_check_begin(checks, "name");
    const char *address = own_address(facts);

    if (facts->name[0] == '\0') {
        vb_check_say(check, "the name of the host is not known");
        return;
    }
    if (facts->name_address[0] == '\0') {
        vb_check_say(check, "%s has no address on this host, so --root and --hosts need addresses",
                     facts->name);
        return;
    }
    vb_check_say(check, "%s is %s", facts->name, facts->name_address);
    if (!facts->name_is_loopback)
        return;
    vb_check_say(check,
                 ", which no other host can reach: --root and --hosts with this name may lead "
                 "ranks to the wrong host");
    if (!facts->several_hosts)
        return;
    check->level = VB_CHECK_WARN;
    if (address != NULL && vb_check_plain(address))
        vb_check_fix(check, "sudo sed -i 's/^%s/%s/' /etc/hosts", facts->name_address, address);
}

static void check_kernel(const struct vb_facts *facts, struct vb_checks *checks)
{
    struct vb_check *check = vb_check_begin(checks, "kernel");

    if (facts->recorded) {
        vb_check_say(check, "system calls cannot be tested in a recording");
        return;
    }
    if (facts->missing_calls[0] == '\0') {
        vb_check_say(check, "Linux %s has all system calls that jobs use", facts->rxe.release);
        return;
    }
    vb_check_warn(check, "Linux %s has no %s, or a sandbox forbids it", facts->rxe.release,
                  facts->missing_calls);
    if (strstr(facts->missing_calls, "memfd_create") != NULL) {
        check->level = VB_CHECK_FAIL;
        vb_check_say(check, ": ranks cannot share memory");
    } else {
        vb_check_say(check, ": a stopped server is not replaced by its standby (--replicas 2)");
    }
    vb_check_fix(check,
                 "sudo apt full-upgrade && sudo reboot # Linux 5.3 or newer; in a container: "
                 "--security-opt seccomp=unconfined");
}

static void check_packages(const struct vb_facts *facts, struct vb_checks *checks)
{
    struct vb_check *check = vb_check_begin(checks, "packages");

    if (facts->recorded) {
        vb_check_say(check, "programs are not part of a recording");
        return;
    }
    if (!facts->no_ssh && !facts->no_gnuplot) {
        vb_check_say(check, "ssh and gnuplot are there");
        return;
    }
    if (facts->no_ssh) {
        vb_check_warn(check, "ssh is missing, which --hosts needs");
        vb_check_fix(check, "sudo apt install openssh-client");
    }
    if (facts->no_gnuplot) {
        vb_check_say(check, "%sgnuplot is missing, which draws plots as PNG and PDF",
                     facts->no_ssh ? "; " : "");
        vb_check_fix(check, "sudo apt install gnuplot-nox");
    }
}

void vb_check_host(const struct vb_facts *facts, struct vb_checks *checks)
{
    check_name(facts, checks);
    check_kernel(facts, checks);
    check_packages(facts, checks);
}
