/* Files that the removal after a failed start deletes, and files that it keeps. */
#include "base/fs.h"
#include "base/status.h"
#include "train/checkpoint/failed_start.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char root[64];

static void begin(void)
{
    strcpy(root, "/tmp/weft-failed-start-XXXXXX");
    cr_assert(mkdtemp(root));
}

static void end(void)
{
    cr_assert_eq(weft_remove_tree(root), WEFT_OK);
}

TestSuite(failed_start, .init = begin, .fini = end);

static const char *path_of(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/run/%s", root, name);
    return path;
}

static void put(const char *name)
{
    cr_assert_eq(weft_make_parent(path_of(name)), WEFT_OK);
    cr_assert_eq(weft_file_write_atomic(path_of(name), "x", 1), WEFT_OK);
}

Test(failed_start, a_folder_of_the_start_becomes_empty)
{
    static const char *const names[] = {".lock",
                                        "metrics.jsonl",
                                        "events.out.tfevents.1.host.2.3",
                                        "data-stage-0.json",
                                        "layout-choice.json",
                                        "activation-plan.json",
                                        "metrics.jsonl.tmp.99",
                                        "cascades/plans.jsonl",
                                        "cascades/iterations.jsonl",
                                        "latents/00ff/lock",
                                        "latents/00ff/empty-caption.npy",
                                        "latents/00ff/train-0000-000000.tar.tmp.99"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        put(names[i]);
    cr_assert_eq(weft_make_dirs(path_of("checkpoints")), WEFT_OK);
    weft_failed_start_remove(path_of(""));
    weft_names left = {0};
    cr_assert_eq(weft_list_dir(path_of(""), false, &left), WEFT_OK);
    cr_expect_eq(left.count, 1, "%lld entries", (long long)left.count);
    cr_expect_str_eq(left.name[0], ".lock", "the lock is held until its release");
    weft_names_free(&left);
}

Test(failed_start, latents_and_files_of_others_stay)
{
    static const char *const names[] = {"note.txt",
                                        "events.txt",
                                        "data-stage-0.txt",
                                        "checkpoints/step-00000001/state.json",
                                        "cascades/mine.jsonl",
                                        "latents/00ff/lock", /* with the shards */
                                        "latents/00ff/complete",
                                        "latents/00ff/train-0000-000000.tar",
                                        "latents/11ff/lock", /* interrupted after its first shard */
                                        "latents/11ff/train-0000-000000.tar",
                                        "latents/22ff/mine.npy"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        put(names[i]);
    weft_failed_start_remove(path_of(""));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        cr_expect(weft_path_exists(path_of(names[i])), "%s was removed", names[i]);
}
