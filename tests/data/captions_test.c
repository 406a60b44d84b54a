/* Captions from tables (captions.csv) and from cues (WebVTT). */
#include "data/caption_csv.h"
#include "data/caption_vtt.h"

#include "base/fs.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static weft_caption_csv read_table(const char *text)
{
    char path[] = "/tmp/weft-captions-XXXXXX";
    weft_caption_csv csv;
    const int file = mkstemp(path);
    cr_assert(file >= 0);
    close(file);
    cr_assert_eq(weft_file_write_atomic(path, text, (int64_t)strlen(text)), WEFT_OK);
    cr_assert_eq(weft_caption_csv_read(path, &csv), WEFT_OK);
    unlink(path);
    return csv;
}

static void expect(const char *text, const char *file, const char *caption)
{
    weft_caption_csv csv = read_table(text);
    const char *found = weft_caption_csv_find(&csv, file);
    cr_assert_str_eq(found ? found : "(none)", caption, "%s", text);
    cr_assert_eq(csv.why.len, 0, "%s", csv.why.data);
    weft_caption_csv_free(&csv);
}

static void expect_why(const char *text, int64_t rows, const char *why)
{
    weft_caption_csv csv = read_table(text);
    cr_assert_eq(csv.rows, rows);
    cr_assert(csv.why.len && strstr(csv.why.data, why), "%s", csv.why.data);
    weft_caption_csv_free(&csv);
}

Test(captions, a_table_has_the_caption_of_a_file)
{
    expect("file,caption\na.mp4,one\nb.mp4,two\n", "b.mp4", "two");
    expect("file,caption\na.mp4,one", "a.mp4", "one");
    expect("\xef\xbb\xbf"
           "n,Caption,File\r\n1,\"a \"\"b\"\", c\",d/a.mp4\r\n",
           "d/a.mp4", "a \"b\", c");
    expect("file,caption\na.mp4,\"two\nlines \"\n\nb.mp4,\n", "a.mp4", "two\nlines");
    expect("file,caption\na.mp4,\n", "a.mp4", "(none)");
    expect("file,caption\n", "a.mp4", "(none)");
}

Test(captions, a_table_tells_what_it_cannot_use)
{
    expect_why("", 0, "columns");
    expect_why("name,text\na,b\n", 0, "columns");
    expect_why("file,caption\na.mp4\nb.mp4,two\n", 1, "line 2 has no");
    expect_why("file,caption\na,\"1\n2\"\na,3\n", 1, "line 4 repeats the file a");
    expect_why("file,caption\na,\"1", 1, "quoted");
    expect_why("file,caption\na,\xff\n", 0, "UTF-8");
}

/* Parses `text` and returns the caption of a clip. */
static void expect_cues(const char *text, double start, double end, const char *caption)
{
    weft_caption_vtt vtt = {0};
    weft_buf why = {0}, joined = {0};
    char copy[1000];
    snprintf(copy, sizeof copy, "%s", text);
    cr_assert_eq(weft_caption_vtt_parse(copy, &vtt, &why), WEFT_OK);
    cr_assert_eq(why.len, 0, "%s", why.data);
    weft_caption_vtt_join(&vtt, start, end, &joined);
    cr_assert_str_eq(joined.len ? joined.data : "", caption);
    weft_caption_vtt_free(&vtt);
    weft_buf_free(&why);
    weft_buf_free(&joined);
}

Test(captions, cues_are_joined_in_the_time_of_a_clip)
{
    static const char cues[] =
        "WEBVTT - title\n\nNOTE a\nremark\n\n1\n00:01.000 --> 00:02.000 line:0\n"
        "<v Ann>a &amp; b</v>\nnext line\n\n01:00:02.000 --> 01:00:09.000\nlater\n\n"
        "2\r\n00:02.000 --> 00:04.000\r\nc\r\n";
    expect_cues(cues, 0, 3, "a & b next line c"); /* half of the last cue */
    expect_cues(cues, 0, 2.9, "a & b next line");
    expect_cues(cues, 2.5, 3, "c"); /* a part of a cue covers the clip */
    expect_cues(cues, 4, 60, "");
    expect_cues(cues, 3603, 3604, "later");
}

Test(captions, cues_tell_what_is_wrong)
{
    static const char *const texts[][2] = {{"1\n00:01.000 --> 00:02.000\na\n", "WEBVTT"},
                                           {"WEBVTT\n\n0:1 -> 2\na\n", "no cue"},
                                           {"WEBVTT\n\n00:02.000 --> 00:01.000\na\n", "span"}};
    for (int i = 0; i < 3; i++) {
        weft_caption_vtt vtt = {0};
        weft_buf why = {0};
        char copy[100];
        snprintf(copy, sizeof copy, "%s", texts[i][0]);
        cr_assert_eq(weft_caption_vtt_parse(copy, &vtt, &why), WEFT_OK);
        cr_assert(why.len && strstr(why.data, texts[i][1]), "%s", why.data);
        weft_caption_vtt_free(&vtt);
        weft_buf_free(&why);
    }
}
