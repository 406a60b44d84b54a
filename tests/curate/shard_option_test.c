/* The value of --shard: numbers, Slurm arrays and Kubernetes jobs. */
#include "curate/shard_option.h"

#include <criterion/criterion.h>
#include <stdlib.h>

static int64_t shard, shards;

static void setup(void)
{
    static const char *const names[] = {"SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_MIN",
                                        "SLURM_ARRAY_TASK_MAX", "SLURM_ARRAY_TASK_COUNT",
                                        "JOB_COMPLETION_INDEX"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
}

static void expect(const char *text, int64_t i, int64_t n)
{
    cr_assert_eq(weft_shard_option_parse(text, &shard, &shards), WEFT_OK, "%s: %s", text,
                 weft_error_message());
    cr_assert(shard == i && shards == n, "%s", text);
}

static void expect_refused(const char *text)
{
    cr_assert_eq(weft_shard_option_parse(text, &shard, &shards), WEFT_E_ARG, "%s", text);
    cr_assert_str_eq(weft_error_fields()->key, "--shard");
}

Test(shard_option, numbers, .init = setup)
{
    static const char *const wrong[] = {"",     "3",    "8/8",  "-1/8",   "1/0", "x/8",
                                        "1/8x", "1//8", "auto", "auto/8", "/8",  "1/1000001"};
    expect("0/1", 0, 1);
    expect("7/8", 7, 8);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        expect_refused(wrong[i]);
}

Test(shard_option, slurm_arrays, .init = setup)
{
    setenv("SLURM_ARRAY_TASK_ID", "12", 1);
    setenv("SLURM_ARRAY_TASK_MIN", "10", 1);
    setenv("SLURM_ARRAY_TASK_MAX", "17", 1);
    setenv("SLURM_ARRAY_TASK_COUNT", "8", 1);
    expect("auto", 2, 8);
    expect("auto/20", 12, 20);
    expect_refused("auto/12");
    setenv("SLURM_ARRAY_TASK_COUNT", "2", 1); /* --array=10,17: only some shards run again */
    expect_refused("auto");
    expect("auto/20", 12, 20);
}

Test(shard_option, kubernetes_jobs, .init = setup)
{
    setenv("JOB_COMPLETION_INDEX", "5", 1);
    expect("auto/6", 5, 6);
    expect_refused("auto");
    expect_refused("auto/5");
}
