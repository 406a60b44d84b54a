/* Sections of the page of a run: each input has its own. */
#include "report/report_page.h"

#include "base/fs.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char folder[64], scores[128], page[128];

static void set_up(void)
{
    strcpy(folder, "/tmp/weft-page-XXXXXX");
    cr_assert(mkdtemp(folder));
    snprintf(scores, sizeof scores, "%s/vae.json", folder);
    snprintf(page, sizeof page, "%s/report.html", folder);
}

static void tear_down(void)
{
    cr_assert_eq(weft_remove_tree(folder), WEFT_OK);
}

TestSuite(page, .init = set_up, .fini = tear_down);

static bool page_has(const weft_report_sources *sources, const char *text)
{
    char *data;
    int64_t bytes;
    cr_assert_eq(weft_report_write(sources, page), WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(weft_file_read(page, 1 << 20, &data, &bytes), WEFT_OK);
    const bool has = strstr(data, text) != NULL;
    weft_free(data);
    return has;
}

Test(page, scores_of_an_autoencoder_are_a_table)
{
    static const char *const cells[] = {">23<", ">31.25<", ">0.8765<", ">27.50<", ">0.5432<"};
    const char json[] = "{\"clips\": 23, \"psnr\": 31.25, \"ssim\": 0.8765, \"box_psnr\": 27.5, "
                        "\"box_ssim\": 0.5432}";
    cr_assert_eq(weft_file_write_atomic(scores, json, (int64_t)strlen(json)), WEFT_OK);
    weft_report_sources sources = {.title = "a run", .vae_eval = scores};
    for (int i = 0; i < 5; i++)
        cr_expect(page_has(&sources, cells[i]), "no cell %s", cells[i]);
    sources.vae_eval = NULL;
    cr_expect_not(page_has(&sources, cells[0]));
}

Test(page, a_generated_video_is_embedded)
{
    static const char *const files[][2] = {
        {"a.mp4", "foobar"},
        {"prompts.jsonl", "{\"file\": \"a.mp4\", \"prompt\": \"a red disc\"}\n"}};
    for (int i = 0; i < 2; i++) {
        char *path = weft_path_join(folder, files[i][0]);
        cr_assert_eq(weft_file_write_atomic(path, files[i][1], (int64_t)strlen(files[i][1])),
                     WEFT_OK);
        weft_free(path);
    }
    weft_report_sources sources = {.title = "a run", .videos = folder};
    cr_expect(page_has(&sources, "data:video/mp4;base64,Zm9vYmFy"));
    cr_expect(page_has(&sources, "a red disc"));
    sources.videos = NULL;
    cr_expect_not(page_has(&sources, "data:video"));
}
