/* Layouts of jobs, as `weft estimate --parallel auto` names them. */
#include "serve/job_layout.h"

#include <criterion/criterion.h>

static void expect(const char *layout, int64_t ranks, bool streams, const char *const expected[])
{
    char text[WEFT_JOB_LAYOUT], *keys[WEFT_JOB_LAYOUT_KEYS];
    int count = 0;
    while (expected[count])
        count++;
    cr_assert_eq(weft_job_layout_split(layout, text, keys), count, "%s", layout);
    for (int i = 0; i < count; i++)
        cr_expect_str_eq(keys[i], expected[i]);
    cr_expect_eq(weft_job_layout_ranks(layout), ranks, "%s", layout);
    cr_expect_eq(weft_job_layout_streams(layout), streams, "%s", layout);
}

Test(job_layout, names_are_values_of_parallel)
{
    expect("1 rank", 1, false, (const char *const[]){NULL});
    expect("1 rank, weights stream", 1, true, (const char *const[]){NULL});
    expect("cfg=2 tp=2 sequence=true", 4, false,
           (const char *const[]){"cfg=2", "tp=2", "sequence=true", NULL});
    expect("fsdp=2 cp=4 context={ulysses: 2, ring: 2}, weights stream", 8, true,
           (const char *const[]){"fsdp=2", "cp=4", "context={ulysses: 2, ring: 2}", NULL});
}
