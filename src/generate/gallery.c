#include "generate/gallery.h"

#include "base/fs.h"
#include "base/json.h"
#include "format/npy.h"
#include "video/image.h"
#include "video/writer.h"

#include <stdio.h>
#include <string.h>

enum { SHEET_COLUMNS = 8 };

struct weft_gallery {
    const char *const *prompts;
    const uint64_t *seeds;
    int64_t count;
    weft_generator_options settings;
    double fps;
    char *out, *sheet;
    bool folder, raw;
    weft_video_writer *writer;
    weft_file_writer array; /* raw: open while `writer` is */
    int64_t writing;        /* prompt that `writer` writes */
    uint8_t *rgb;           /* one frame */
    uint8_t **cells;        /* [count]: SHEET_COLUMNS frames each */
    weft_buf list;          /* prompts.jsonl */
};

weft_status weft_gallery_check_sheet(const char *sheet)
{
    if (weft_path_is_dir(sheet) || strcmp(weft_path_extension(sheet), "png"))
        return weft_fail(WEFT_E_ARG, "%s: a contact sheet is a file that is written as .png",
                         sheet);
    return WEFT_OK;
}

/* 0003.npy of 0003.mp4. */
static void array_path(const char *video, weft_buf *path)
{
    weft_buf_printf(path, "%.*s.npy", (int)(strlen(video) - strlen(".mp4")), video);
}

/* What a killed run was writing under the names that this one writes. */
static weft_status remove_leftovers(const weft_gallery *g)
{
    weft_buf array = {0};
    weft_status_code status = WEFT_OK;
    if (g->sheet)
        WEFT_GO(weft_remove_leftovers_of(g->sheet));
    if (g->folder) {
        status = weft_remove_leftovers(g->out, false);
        goto out;
    }
    WEFT_GO(weft_remove_leftovers_of(g->out));
    array_path(g->out, &array);
    WEFT_GO(weft_buf_check(&array));
    status = weft_remove_leftovers_of(array.data);
out:
    weft_buf_free(&array);
    return status;
}

/* Whether a file may be written there; said before the work begins, not after it. */
static weft_status try_to_write(const char *path)
{
    weft_file_writer probe;
    WEFT_TRY(weft_file_begin(&probe, path));
    weft_file_abort(&probe);
    return WEFT_OK;
}

static weft_status check_places(const weft_gallery *g)
{
    char *path = g->folder ? weft_path_join(g->out, "prompts.jsonl") : weft_strdup(g->out);
    if (!path)
        return weft_fail(WEFT_E_MEMORY, "out of memory");
    weft_status_code status = try_to_write(path);
    if (status == WEFT_OK && g->sheet)
        status = try_to_write(g->sheet);
    weft_free(path);
    return status;
}

weft_status weft_gallery_open(const char *out, const char *sheet, bool raw,
                              const char *const *prompts, const uint64_t *seeds, int64_t count,
                              const weft_generator_options *settings, double fps,
                              weft_gallery **gallery)
{
    const bool folder = strcmp(weft_path_extension(out), "mp4") != 0;
    static const char *const others[] = {"avi", "mov", "mkv", "webm", "gif", "m4v", "MP4"};
    for (int i = 0; i < WEFT_COUNT(others); i++)
        if (!strcmp(weft_path_extension(out), others[i]) && !weft_path_is_dir(out))
            return weft_fail(WEFT_E_ARG, "%s: a video is written as .mp4, not .%s", out, others[i]);
    if (!folder && weft_path_is_dir(out))
        return weft_fail(WEFT_E_ARG, "%s is a folder, and a video of this name cannot be written",
                         out);
    if (sheet)
        WEFT_TRY(weft_gallery_check_sheet(sheet));
    if (!folder && count != 1)
        return weft_fail(WEFT_E_ARG, "%s is one file, but there are %lld prompts; name a folder",
                         out, (long long)count);
    weft_gallery *g = weft_alloc(sizeof *g);
    const int64_t frame_bytes = settings->height * settings->width * 3;
    if (!g)
        return weft_fail(WEFT_E_MEMORY, "out of memory");
    *g = (weft_gallery){.prompts = prompts,
                        .seeds = seeds,
                        .count = count,
                        .settings = *settings,
                        .fps = fps,
                        .folder = folder,
                        .raw = raw,
                        .writing = -1};
    g->out = weft_strdup(out);
    g->sheet = sheet ? weft_strdup(sheet) : NULL;
    g->rgb = weft_alloc(frame_bytes);
    g->cells = weft_alloc(count * (int64_t)sizeof *g->cells);
    bool ok = g->out && g->rgb && g->cells && (!sheet || g->sheet);
    for (int64_t i = 0; ok && sheet && i < count; i++) {
        g->cells[i] = weft_alloc(SHEET_COLUMNS * frame_bytes);
        ok = g->cells[i] != NULL;
    }
    weft_status_code status =
        ok ? WEFT_OK : weft_fail(WEFT_E_MEMORY, "out of memory for %lld videos", (long long)count);
    if (status == WEFT_OK)
        status = folder ? weft_make_dirs(out) : weft_make_parent(out);
    if (status == WEFT_OK && sheet)
        status = weft_make_parent(sheet);
    if (status == WEFT_OK)
        status = remove_leftovers(g);
    if (status == WEFT_OK)
        status = check_places(g);
    if (status != WEFT_OK) {
        weft_gallery_free(g);
        return status;
    }
    *gallery = g;
    return WEFT_OK;
}

/* Beside the video; written frame by frame like the video. */
static weft_status begin_array(weft_gallery *g, const char *video)
{
    weft_buf path = {0}, header = {0};
    weft_npy_format(WEFT_F32, 4,
                    (const int64_t[]){g->settings.frames, g->settings.height, g->settings.width, 3},
                    NULL, &header);
    array_path(video, &path);
    weft_status_code status = weft_buf_check(&path);
    if (status == WEFT_OK)
        status = weft_buf_check(&header);
    if (status == WEFT_OK)
        status = weft_file_begin(&g->array, path.data);
    if (status == WEFT_OK)
        status = weft_file_write(&g->array, header.data, header.len);
    weft_buf_free(&path);
    weft_buf_free(&header);
    return status;
}

static weft_status begin(weft_gallery *g, int64_t prompt)
{
    char seed[32], steps[32], guidance[32], name[32];
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)g->seeds[prompt]);
    snprintf(steps, sizeof steps, "%lld", (long long)g->settings.steps);
    snprintf(guidance, sizeof guidance, "%g", g->settings.guidance);
    snprintf(name, sizeof name, "%04lld.mp4", (long long)prompt);
    const weft_video_tag tags[] = {{"title", g->prompts[prompt]},
                                   {"seed", seed},
                                   {"steps", steps},
                                   {"guidance", guidance},
                                   {"sampler", g->settings.sampler->name},
                                   {"encoder", "weft"}};
    const weft_video_writer_options options = {.width = g->settings.width,
                                               .height = g->settings.height,
                                               .fps = g->fps,
                                               .crf = 12,
                                               .tags = tags,
                                               .tag_count = (int)(sizeof tags / sizeof *tags)};
    char *path = g->folder ? weft_path_join(g->out, name) : weft_strdup(g->out);
    weft_status_code status = path ? weft_video_writer_open(path, &options, &g->writer)
                                   : weft_fail(WEFT_E_MEMORY, "out of memory");
    if (status == WEFT_OK && g->raw)
        status = begin_array(g, path);
    weft_free(path);
    if (status != WEFT_OK)
        return status;
    g->writing = prompt;
    json_t *line = json_pack("{s:s, s:s, s:I}", "file", name, "prompt", g->prompts[prompt], "seed",
                             (json_int_t)g->seeds[prompt]);
    char *text = line ? weft_json_line(line) : NULL;
    json_decref(line);
    weft_buf_printf(&g->list, "%s\n", text ? text : "");
    weft_free(text);
    return weft_buf_check(&g->list);
}

static weft_status end(weft_gallery *g)
{
    if (!g->writer)
        return WEFT_OK;
    const weft_status_code status = weft_video_writer_finish(g->writer);
    weft_video_writer_close(g->writer);
    g->writer = NULL;
    return status == WEFT_OK && g->raw ? weft_file_commit(&g->array) : status;
}

/* Columns are spread evenly from the first to the last frame; short videos repeat frames. */
static void keep_for_sheet(weft_gallery *g, int64_t prompt, int64_t frame)
{
    const int64_t bytes = g->settings.height * g->settings.width * 3, last = g->settings.frames - 1;
    for (int c = 0; c < SHEET_COLUMNS; c++)
        if ((last * c + (SHEET_COLUMNS - 1) / 2) / (SHEET_COLUMNS - 1) == frame)
            memcpy(g->cells[prompt] + c * bytes, g->rgb, (size_t)bytes);
}

weft_status weft_gallery_frames(weft_gallery *g, int64_t prompt, int64_t first_frame, int64_t count,
                                const float *frames)
{
    const int64_t values = g->settings.height * g->settings.width * 3;
    if (prompt != g->writing) {
        WEFT_TRY(end(g));
        WEFT_TRY(begin(g, prompt));
    }
    if (g->raw)
        WEFT_TRY(weft_file_write(&g->array, frames, count * values * (int64_t)sizeof *frames));
    for (int64_t f = 0; f < count; f++) {
        weft_clip_to_u8(frames + f * values, 1, g->settings.height, g->settings.width, false,
                        g->rgb);
        WEFT_TRY(weft_video_writer_rgb(g->writer, g->rgb, g->settings.width * 3));
        if (g->sheet)
            keep_for_sheet(g, prompt, first_frame + f);
    }
    return WEFT_OK;
}

static weft_status write_sheet(weft_gallery *g)
{
    uint8_t *sheet = NULL;
    int64_t w, h;
    int64_t *frames = weft_alloc(g->count * (int64_t)sizeof *frames);
    if (!frames)
        return weft_fail(WEFT_E_MEMORY, "out of memory for the contact sheet");
    for (int64_t i = 0; i < g->count; i++)
        frames[i] = SHEET_COLUMNS;
    /* small videos are shown twice as large */
    const int64_t zoom = g->settings.width <= 128 ? 2 : 1;
    weft_status_code status = weft_sheet_make(
        (const uint8_t *const *)g->cells, frames, g->count, g->settings.width, g->settings.height,
        SHEET_COLUMNS, g->settings.width * zoom, g->settings.height * zoom, 4, &sheet, &w, &h);
    if (status == WEFT_OK)
        status = weft_png_write(g->sheet, sheet, w, h);
    weft_free(sheet);
    weft_free(frames);
    return status;
}

weft_status weft_gallery_finish(weft_gallery *g)
{
    WEFT_TRY(end(g));
    if (g->folder && g->list.len) {
        char *path = weft_path_join(g->out, "prompts.jsonl");
        const weft_status_code status =
            path ? weft_file_write_atomic(path, g->list.data, g->list.len)
                 : weft_fail(WEFT_E_MEMORY, "out of memory");
        weft_free(path);
        WEFT_TRY(status);
    }
    return g->sheet ? write_sheet(g) : WEFT_OK;
}

void weft_gallery_free(weft_gallery *g)
{
    if (!g)
        return;
    weft_video_writer_close(g->writer);
    if (g->raw)
        weft_file_abort(&g->array);
    for (int64_t i = 0; g->cells && i < g->count; i++)
        weft_free(g->cells[i]);
    weft_free(g->cells);
    weft_free(g->rgb);
    weft_free(g->out);
    weft_free(g->sheet);
    weft_buf_free(&g->list);
    weft_free(g);
}
