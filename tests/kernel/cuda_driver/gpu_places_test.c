/* Which rank of a machine uses which GPU. */
#include "kernel/cuda/gpu_places.h"

#include <criterion/criterion.h>
#include <string.h>

/* Two GPUs near node 1 and two near node 0, as in tests/comm/gpu_ranks_test.sh. */
static const weft_gpu_list four = {.count = 4, .numa = {1, 1, 0, 0}};

static void expect(const weft_gpu_list *list, int ranks, const int32_t *numa, const int *gpu)
{
    int given[8];
    weft_gpu_assign(numa, ranks, list, given);
    for (int r = 0; r < ranks; r++)
        cr_expect_eq(given[r], gpu[r], "rank %d of %d: GPU %d, not %d", r, ranks, given[r], gpu[r]);
}

Test(gpu_places, ranks_without_a_binding_use_gpus_in_their_order)
{
    const int32_t any[] = {-1, -1, -1, -1, -1, -1};
    expect(&four, 4, any, (int[]){0, 1, 2, 3});
    expect(&four, 6, any, (int[]){0, 1, 2, 3, 0, 1});
}

Test(gpu_places, bound_ranks_use_gpus_of_their_node)
{
    expect(&four, 4, (int32_t[]){0, 0, 1, 1}, (int[]){2, 3, 0, 1});
    expect(&four, 4, (int32_t[]){0, 1, 0, 1}, (int[]){2, 0, 3, 1});
    expect(&four, 2, (int32_t[]){1, 0}, (int[]){0, 2});
}

/* A GPU of another node is better than a shared one. */
Test(gpu_places, no_gpu_is_shared_while_another_is_free)
{
    expect(&four, 4, (int32_t[]){0, 0, 0, -1}, (int[]){2, 3, 0, 1});
    expect(&four, 4, (int32_t[]){0, 0, 0, 0}, (int[]){2, 3, 0, 1});
    expect(&four, 5, (int32_t[]){0, 0, 0, 0, 0}, (int[]){2, 3, 0, 1, 2});
}

Test(gpu_places, an_unknown_node_has_no_effect)
{
    const weft_gpu_list unknown = {.count = 2, .numa = {-1, -1}};
    expect(&unknown, 3, (int32_t[]){1, 0, 1}, (int[]){0, 1, 0});
    expect(&four, 2, (int32_t[]){7, 7}, (int[]){0, 1});
}
