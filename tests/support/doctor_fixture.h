/* SPDX-License-Identifier: MIT
 *
 * Helpers for the doctor tests: the facts about a machine without faults, in which each test then
 * changes something, and assertions about one check.
 */
#ifndef VB_TESTS_SUPPORT_DOCTOR_FIXTURE_H
#define VB_TESTS_SUPPORT_DOCTOR_FIXTURE_H

#include "doctor/doctor.h"
#include "engine/engine.h"
#include "tests/support/test.h"

#define MIB ((int64_t)1 << 20)
#define GIB ((int64_t)1 << 30)

/* ---- a machine without faults ---------------------------------------------------------------- */

struct t_machine {
    struct vb_facts facts;
    struct vb_iface ifaces[3];
    struct vb_rdma_dev dev;
    struct vb_rdma_port port;
    struct vb_rdma_gid gids[2];
};

static inline void t_add_card(struct t_machine *m)
{
    m->gids[0] = (struct vb_rdma_gid){
        .index = 0, .type = VB_GID_ROCE_V1, .text = "fe80::1", .netdev = "ens1"};
    m->gids[1] = (struct vb_rdma_gid){
        .index = 3, .type = VB_GID_ROCE_V2, .text = "::ffff:10.10.1.1", .netdev = "ens1"};
    m->port = (struct vb_rdma_port){.num = 1, .active = true, .ethernet = true, .state = "ACTIVE"};
    m->port.speed_gbit = 100;
    m->port.mtu_bytes = 4096;
    m->port.max_msg_bytes = GIB;
    m->port.gids = m->gids;
    m->port.n_gids = 2;
    m->dev = (struct vb_rdma_dev){.name = "mlx5_0", .transport = VB_RDMA_ROCE};
    snprintf(m->dev.driver, sizeof(m->dev.driver), "mlx5_core");
    snprintf(m->dev.firmware, sizeof(m->dev.firmware), "16.35");
    m->dev.ports = &m->port;
    m->dev.n_ports = 1;
    m->facts.rdma = &m->dev;
    m->facts.n_rdma = 1;
}

static inline void t_make_good(struct t_machine *m)
{
    struct vb_facts *f = &m->facts;

    memset(m, 0, sizeof(*m));
    m->ifaces[0] = (struct vb_iface){.name = "lo", .kind = VB_IFACE_LOOPBACK, .up = true};
    m->ifaces[1] = (struct vb_iface){
        .name = "ens1", .kind = VB_IFACE_PHYSICAL, .up = true, .speed_mbit = 100000};
    f->ifaces = m->ifaces;
    f->n_ifaces = 2;
    t_add_card(m);
    f->rxe = (struct vb_rxe){.release = "6.1.0-18-amd64", .kernel_has_modules = true};
    f->rxe.present = f->rxe.tool = true;
    f->memlock = (struct vb_limit){VB_LIMIT_NONE, VB_LIMIT_NONE};
    f->files = (struct vb_limit){1024, 1048576};
    snprintf(f->distro, sizeof(f->distro), "debian");
    snprintf(f->thp, sizeof(f->thp), "madvise");
    snprintf(f->shmem_thp, sizeof(f->shmem_thp), "advise");
    snprintf(f->governor, sizeof(f->governor), "performance");
    snprintf(f->clock, sizeof(f->clock), "tsc");
    snprintf(f->clocks, sizeof(f->clocks), "tsc hpet acpi_pm");
    f->n_governed = f->n_cpus = f->n_allowed_cpus = 8;
    f->memory_bytes = 64 * GIB;
    f->onednn = (struct vb_k_onednn){
        .version = "3.7.2", .isa = "avx2", .conv = "jit:avx2", .inner = "gemm:jit"};
    f->blas = (struct vb_k_blas){.version = "0.3.21", .core = "Haswell"};
}

/* ---- running the checks ---------------------------------------------------------------------- */

static inline const struct vb_check *t_find(const struct vb_check *checks, int n, const char *name)
{
    int i;

    for (i = 0; i < n; i++)
        if (strcmp(checks[i].name, name) == 0)
            return &checks[i];
    return NULL;
}

/* Returns the text of a check, or "" if no check has this name. */
static inline const char *t_said(const struct vb_check *checks, int n, const char *name)
{
    const struct vb_check *check = t_find(checks, n, name);

    return check != NULL ? check->what : "";
}

/* Runs all checks and asserts three properties of one check: its level, a part of its text, and the
 * proposed fix (NULL: the check proposes none). */
static inline void t_expect(const struct vb_facts *facts, const char *name,
                            enum vb_check_level level, const char *what, const char *fix)
{
    struct vb_check checks[VB_CHECKS_MAX];
    int n = vb_doctor_judge(facts, checks);
    const struct vb_check *check = t_find(checks, n, name);

    assert_true(n <= VB_CHECKS_MAX);
    assert_non_null(check);
    if (check->level != level || strstr(check->what, what) == NULL)
        print_message("%s: %s %s\n", name, vb_check_level_str(check->level), check->what);
    assert_int_equal(check->level, level);
    assert_non_null(strstr(check->what, what));
    assert_string_equal(check->fix, fix != NULL ? fix : "");
}

#endif
