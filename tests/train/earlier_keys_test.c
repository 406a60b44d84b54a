/* A run that was started with earlier names of keys resumes: no key counts as changed. */
#include "base/config_text.h"
#include "train/checkpoint/provenance.h"
#include "train/config/train_config.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char said[1 << 16];

/* Output of log_changes for the dump of `folder`, with the values of `yaml`. */
static const char *changes_of(const char *folder, const char *yaml)
{
    FILE *file = tmpfile();
    fflush(stderr);
    const int kept = dup(2);
    dup2(fileno(file), 2);
    weft_provenance_log_changes(folder, yaml);
    fflush(stderr);
    dup2(kept, 2);
    close(kept);
    rewind(file);
    said[fread(said, 1, sizeof said - 1, file)] = 0;
    fclose(file);
    return said;
}

Test(earlier_keys, of_a_dump_are_no_change)
{
    static const char text[] = "out: runs/a\ndata: {path: shards, threads: 2, embeddings: online}\n"
                               "recompute: [blocks.*]\ndeadline: 60\ncheckpoint: {every: 10}\n"
                               "memory: {states: kept, recompute: none, ahead: 1MiB}\n"
                               "parallel: {slices: {lift_time: 2}, order: [dp]}\n"
                               "transformer: {train: [to_q]}\nguidance: 3\nnoise_from: 0.2\n"
                               "passes: {slice: off}\nloss: {adversarial: {video: true}}\n"
                               "stages: [{steps: 2, warmup: 1, lr_end: 0.5, tokens: 9}]\n";
    char folder[] = "/tmp/weft-earlier-XXXXXX", path[64];
    cr_assert(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/config.yaml", folder);
    weft_arena *arena = weft_arena_create();
    weft_run run;
    weft_buf now = {0}, before = {0};
    cr_assert_eq(
        weft_config_parse_dump(arena, text, sizeof text - 1, "run.yaml", &weft_run_section, &run),
        WEFT_OK, "%s", weft_error_message());
    weft_config_dump(&weft_run_section, &run, &now);
    weft_config_dump_earlier(&weft_run_section, &run, &before);
    cr_assert(strstr(before.data, "\ndeadline: 60\n") && strstr(now.data, "\ncomm_timeout: 60\n"));
    cr_assert(!strstr(now.data, "kept") && !strstr(now.data, "\nrecompute:"));

    /* the format of the earlier version: the top level has recompute, too */
    weft_buf old = {0};
    char *list = strstr(before.data, "  recompute: [\"none\", \"blocks.*\"]\n");
    cr_assert(list, "%s", before.data);
    weft_buf_printf(&old, "%.*s  recompute: [\"none\"]\n%srecompute: [\"blocks.*\"]\n",
                    (int)(list - before.data), before.data, strchr(list, '\n') + 1);
    FILE *file = fopen(path, "w");
    cr_assert(file && fwrite(old.data, 1, (size_t)old.len, file) == (size_t)old.len);
    fclose(file);
    cr_assert_str_eq(changes_of(folder, now.data), "");

    run.deadline = 61;
    weft_buf_free(&now);
    now = (weft_buf){0};
    weft_config_dump(&weft_run_section, &run, &now);
    cr_assert(strstr(changes_of(folder, now.data), "comm_timeout: 61, was 60"), "%s", said);
    remove(path);
    rmdir(folder);
    weft_buf_free(&now);
    weft_buf_free(&before);
    weft_buf_free(&old);
    weft_arena_free(arena);
}
