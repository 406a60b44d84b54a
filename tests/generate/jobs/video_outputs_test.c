/* The list of a folder of videos: a line that does not fit on the disk is reported and not written
 * in part. */
#include "base/fs.h"
#include "generate/jobs/video_outputs.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { SIDE = 16, FRAME = SIDE * SIDE * 3, ROOM = 16 << 10, LONG = 24 << 10 };

static int64_t bytes_of(const char *dir, const char *name, char **text)
{
    char *path = weft_path_join(dir, name);
    int64_t bytes = 0;
    cr_assert_eq(weft_file_read(path, 1 << 20, text, &bytes), WEFT_OK, "%s", weft_error_message());
    weft_free(path);
    return bytes;
}

Test(gallery, a_line_is_whole_or_not_there)
{
    char dir[] = "/tmp/weft-gallery-XXXXXX", *text, *whole, command[64];
    static const float frame[FRAME];
    cr_assert(mkdtemp(dir));
    const weft_video_outputs_item dog = {.prompt = "a dog",
                                         .frames = 1,
                                         .height = SIDE,
                                         .width = SIDE,
                                         .steps = 1,
                                         .guidance = 1,
                                         .sampler = "euler",
                                         .fps = 8};
    weft_video_outputs_item item[2] = {dog, dog};
    item[1].prompt = "a cat";
    const weft_video_outputs_options o = {.out = dir, .items = item, .count = 2};
    weft_video_outputs *g;
    cr_assert_eq(weft_video_outputs_open(&o, &g), WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(weft_video_outputs_frames(g, 0, 0, 1, frame), WEFT_OK, "%s", weft_error_message());
    const int64_t before = bytes_of(dir, "prompts.jsonl", &whole);
    /* writes end at this number of bytes, as on a full disk: the first write is short */
    signal(SIGXFSZ, SIG_IGN);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &(struct rlimit){ROOM, RLIM_INFINITY}), 0);
    char *note = weft_alloc(LONG + 1);
    memset(note, 'x', LONG);
    weft_video_outputs_facts(g, json_pack("{s:s}", "note", note));
    const weft_status_code status = weft_video_outputs_frames(g, 1, 0, 1, frame);
    cr_assert_neq(status, WEFT_OK);
    cr_assert_eq(weft_error_class(), WEFT_MSG_FILE_IO, "%s", weft_error_message());
    cr_expect(strstr(weft_error_fields()->file, "prompts.jsonl"), "%s", weft_error_message());
    cr_expect(strstr(weft_error_text(), "File too large"), "%s", weft_error_text());
    cr_assert_eq(bytes_of(dir, "prompts.jsonl", &text), before);
    cr_assert_eq(memcmp(text, whole, (size_t)before), 0);
    weft_video_outputs_free(g);
    weft_free(note);
    weft_free(text);
    weft_free(whole);
    snprintf(command, sizeof command, "rm -r '%s'", dir);
    cr_assert_eq(system(command), 0);
}
