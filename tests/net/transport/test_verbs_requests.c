/* SPDX-License-Identifier: MIT
 *
 * Tests the places of RDMA requests that wait for an answer, and how failed calls of libibverbs are
 * reported. Needs no device; test_verbs.c makes real requests.
 *
 * Covers: net/verbs/verbs_requests.c
 */
#include "net/verbs/verbs_priv.h"
#include "tests/support/test.h"

#include <errno.h>

#define RANKS 64

static struct rdma_cm_id ids[RANKS * (VERBS_PLACES + 1)]; /* only their addresses are used */

/* Keeps a request as vb_verbs_request_keep() does. Returns the id of the request that it replaces,
 * or NULL. */
static struct rdma_cm_id *call(struct verbs_request *list, int rank, int nth)
{
    struct verbs_request *place = vb_verbs_request_place(list, rank);
    struct rdma_cm_id *was = place->id;

    assert_true(place >= list && place < list + RANKS * VERBS_PLACES);
    place->id = &ids[rank * (VERBS_PLACES + 1) + nth];
    place->number = (uint64_t)nth + 1;
    place->from.rank = rank;
    return was;
}

static void every_rank_has_places_of_its_own(void **state)
{
    struct verbs_request list[RANKS * VERBS_PLACES] = {{0}};
    int rank, nth;

    (void)state;
    for (nth = 0; nth < VERBS_PLACES; nth++)
        for (rank = 0; rank < RANKS; rank++)
            assert_null(call(list, rank, nth));
}

/* One more caller that claims a rank must cost only this rank its oldest request. */
static void a_flood_costs_only_the_rank_it_claims(void **state)
{
    struct verbs_request list[RANKS * VERBS_PLACES] = {{0}};
    int rank, i, claimed = 7;

    (void)state;
    for (rank = 0; rank < RANKS; rank++)
        assert_null(call(list, rank, 0));
    for (i = 1; i < VERBS_PLACES; i++)
        assert_null(call(list, claimed, i));
    assert_ptr_equal(call(list, claimed, VERBS_PLACES), &ids[claimed * (VERBS_PLACES + 1)]);
    for (rank = 0; rank < RANKS; rank++)
        if (rank != claimed)
            assert_ptr_equal(list[rank * VERBS_PLACES].id, &ids[rank * (VERBS_PLACES + 1)]);
}

/* The calls return the code. What errno has from an earlier call must not be reported. */
static void the_returned_code_is_reported(void **state)
{
    struct ibv_device device = {.name = "test0"};
    struct ibv_context ctx = {.device = &device};
    struct t_stderr t;
    char text[1024];

    (void)state;
    t_stderr_catch(&t);
    errno = ENOENT;
    assert_int_equal(vb_verbs_err(ENOMEM, "ibv_query_port", &ctx), VB_ERR_NO_MEMORY);
    errno = ENOTTY; /* a few providers return -1 and set errno */
    (void)vb_verbs_err(-1, "ibv_query_qp", &ctx);
    t_stderr_release(&t, text, sizeof(text));
    assert_non_null(strstr(text, "ibv_query_port on test0: Cannot allocate memory"));
    assert_non_null(strstr(text, "ibv_query_qp on test0: Inappropriate ioctl"));
    assert_null(strstr(text, "No such file"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rank_has_places_of_its_own),
        cmocka_unit_test(a_flood_costs_only_the_rank_it_claims),
        cmocka_unit_test(the_returned_code_is_reported),
    };

    return T_RUN(tests);
}
