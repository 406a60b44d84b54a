#include "generate/gallery.h"

#include "base/fs.h"
#include "base/json.h"
#include "format/npy.h"
#include "video/image.h"
#include "video/reader.h"
#include "video/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum { SHEET_COLUMNS = 8 };

struct weft_gallery {
    weft_gallery_options o;
    char *out, *sheet;
    bool folder;
    weft_video_writer *writer;
    weft_file_writer array; /* raw: open while `writer` is */
    int64_t writing;        /* the item that `writer` writes; -1: none */
    uint8_t *rgb;           /* one frame */
    uint8_t **cells;        /* [count]: SHEET_COLUMNS frames each */
    json_t *facts;          /* of the line of that item; NULL: none */
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
    if (g->sheet)
        WEFT_TRY(weft_remove_leftovers_of(g->sheet));
    return g->folder ? weft_remove_leftovers(g->out, true) : weft_remove_leftovers_beside(g->out);
}

static weft_status check_places(const weft_gallery *g)
{
    char *path = g->folder ? weft_path_join(g->out, "prompts.jsonl") : weft_strdup(g->out);
    if (!path)
        return weft_fail(WEFT_E_MEMORY, "out of memory");
    weft_status_code status = weft_file_try(path);
    if (status == WEFT_OK && g->sheet)
        status = weft_file_try(g->sheet);
    weft_free(path);
    return status;
}

const char *weft_gallery_name(const char *file, int64_t number, char own[32])
{
    snprintf(own, 32, "%04lld.mp4", (long long)number);
    return file ? file : own;
}

static bool is_folder(const char *out)
{
    return strcmp(weft_path_extension(out), "mp4") != 0;
}

weft_status weft_gallery_beside(const char *out, const weft_gallery_item *item, int64_t number,
                                const char *ending, weft_buf *path)
{
    char own[32];
    const char *name = is_folder(out) ? weft_gallery_name(item->file, number, own) : out;
    const int stem = (int)(strlen(name) - strlen("mp4"));
    weft_buf_free(path);
    if (is_folder(out))
        weft_buf_printf(path, "%s/", out);
    weft_buf_printf(path, "%.*s%s", stem, name, ending);
    return weft_buf_check(path);
}

static weft_status check_out(const weft_gallery_options *o)
{
    static const char *const others[] = {"avi", "mov", "mkv", "webm", "gif", "m4v", "MP4"};
    static const char *const pictures[] = {"png", "jpg", "jpeg", "webp"};
    for (int i = 0; i < WEFT_COUNT(others); i++)
        if (!strcmp(weft_path_extension(o->out), others[i]) && !weft_path_is_dir(o->out))
            return weft_fail(WEFT_E_ARG, "%s: a video is written as .mp4, not .%s", o->out,
                             others[i]);
    for (int i = 0; i < WEFT_COUNT(pictures); i++)
        if (!strcmp(weft_path_extension(o->out), pictures[i]) && !weft_path_is_dir(o->out))
            return weft_fail(WEFT_E_ARG,
                             "%s: a video is written as .mp4, not .%s; --sheet FILE.png writes a "
                             "picture of its frames",
                             o->out, pictures[i]);
    if (!is_folder(o->out) && weft_path_is_dir(o->out))
        return weft_fail(WEFT_E_ARG, "%s is a folder, and a video of this name cannot be written",
                         o->out);
    if (o->sheet)
        WEFT_TRY(weft_gallery_check_sheet(o->sheet));
    for (int64_t i = 1; o->sheet && i < o->count; i++)
        if (o->items[i].height != o->items->height || o->items[i].width != o->items->width)
            return weft_fail(WEFT_E_ARG,
                             "%s: a contact sheet is of videos of one size, and number %lld has "
                             "another than the first",
                             o->sheet, (long long)i);
    if (!is_folder(o->out) && o->count != 1)
        return weft_fail(WEFT_E_ARG, "%s is one file, but there are %lld prompts; name a folder",
                         o->out, (long long)o->count);
    return WEFT_OK;
}

/* Folders, what is left of killed runs, the list; by one of the ranks that write there. */
static weft_status prepare(const weft_gallery *g)
{
    WEFT_TRY(g->folder ? weft_make_dirs(g->out) : weft_make_parent(g->out));
    if (g->sheet)
        WEFT_TRY(weft_make_parent(g->sheet));
    WEFT_TRY(remove_leftovers(g));
    WEFT_TRY(check_places(g));
    if (!g->folder || g->o.goes_on)
        return WEFT_OK;
    char *path = weft_path_join(g->out, "prompts.jsonl");
    const weft_status_code status =
        path ? weft_file_write_atomic(path, "", 0) : weft_fail(WEFT_E_MEMORY, "out of memory");
    weft_free(path);
    return status;
}

static int64_t frame_bytes(const weft_gallery_item *item)
{
    return item->height * item->width * 3;
}

weft_status weft_gallery_open(const weft_gallery_options *o, weft_gallery **gallery)
{
    WEFT_TRY(check_out(o));
    weft_gallery *g = weft_alloc(sizeof *g);
    if (!g)
        return weft_fail(WEFT_E_MEMORY, "out of memory");
    *g = (weft_gallery){.o = *o, .folder = is_folder(o->out), .writing = -1};
    int64_t largest = 0;
    for (int64_t i = 0; i < o->count; i++)
        largest = frame_bytes(&o->items[i]) > largest ? frame_bytes(&o->items[i]) : largest;
    g->out = weft_strdup(o->out);
    g->sheet = o->sheet ? weft_strdup(o->sheet) : NULL;
    g->rgb = weft_alloc(largest);
    g->cells = weft_alloc(o->count * (int64_t)sizeof *g->cells);
    bool ok = g->out && g->rgb && g->cells && (!o->sheet || g->sheet);
    for (int64_t i = 0; ok && o->sheet && i < o->count; i++) {
        g->cells[i] = weft_alloc(SHEET_COLUMNS * frame_bytes(&o->items[i]));
        ok = g->cells[i] != NULL;
    }
    weft_status_code status =
        ok ? WEFT_OK
           : weft_fail(WEFT_E_MEMORY, "out of memory for %lld videos", (long long)o->count);
    if (status == WEFT_OK && !o->second)
        status = prepare(g);
    if (status != WEFT_OK) {
        weft_gallery_free(g);
        return status;
    }
    *gallery = g;
    return WEFT_OK;
}

void weft_gallery_facts(weft_gallery *g, json_t *facts)
{
    json_decref(g->facts);
    g->facts = facts;
}

/* Beside the video; written frame by frame like the video. */
static weft_status begin_array(weft_gallery *g, const char *video)
{
    weft_buf path = {0}, header = {0};
    const weft_gallery_item *item = &g->o.items[g->writing];
    weft_npy_format(WEFT_F32, 4, (const int64_t[]){item->frames, item->height, item->width, 3},
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

/* What was written of another video, or of an attempt that is begun anew, does not stay. */
static void drop(weft_gallery *g)
{
    weft_video_writer_close(g->writer);
    if (g->writer && g->o.raw)
        weft_file_abort(&g->array);
    g->writer = NULL;
    g->writing = -1;
}

/* What a video's file says of how it was made; the first SAME of them, and the negative prompt, are
 * what makes it that video. */
enum { SAME = 4 };
typedef struct said {
    char seed[32], steps[32], guidance[32];
    weft_video_tag tag[7];
    int count;
} said;

static void say(const weft_gallery_item *item, said *s)
{
    snprintf(s->seed, sizeof s->seed, "%llu", (unsigned long long)item->seed);
    snprintf(s->steps, sizeof s->steps, "%lld", (long long)item->steps);
    snprintf(s->guidance, sizeof s->guidance, "%g", item->guidance);
    const weft_video_tag tags[] = {{"title", item->prompt},     {"seed", s->seed},
                                   {"steps", s->steps},         {"guidance", s->guidance},
                                   {"sampler", item->sampler},  {"encoder", "weft"},
                                   {"negative", item->negative}};
    memcpy(s->tag, tags, sizeof tags);
    s->count = WEFT_COUNT(tags) - !(item->negative && item->negative[0]);
}

static weft_status begin(weft_gallery *g, int64_t number)
{
    char own[32];
    said s;
    const weft_gallery_item *item = &g->o.items[number];
    const char *name = weft_gallery_name(item->file, number, own);
    drop(g);
    say(item, &s);
    const weft_video_writer_options options = {.width = item->width,
                                               .height = item->height,
                                               .fps = item->fps,
                                               .crf = 12,
                                               .tags = s.tag,
                                               .tag_count = s.count};
    char *path = g->folder ? weft_path_join(g->out, name) : weft_strdup(g->out);
    weft_status_code status =
        path ? weft_make_parent(path) : weft_fail(WEFT_E_MEMORY, "out of memory");
    if (status == WEFT_OK)
        status = weft_video_writer_open(path, &options, &g->writer);
    g->writing = number;
    if (status == WEFT_OK && g->o.raw)
        status = begin_array(g, path);
    weft_free(path);
    return status;
}

static bool says(const weft_video_reader *reader, const char *key, const char *value)
{
    const char *tag = weft_video_reader_tag(reader, key);
    return !strcmp(tag ? tag : "", value ? value : "");
}

bool weft_gallery_is_there(const char *path, const weft_gallery_item *item)
{
    const weft_video_options tiny = {.format = WEFT_VIDEO_SMALL, .width = 16, .height = 16};
    weft_video_reader *reader;
    said s;
    if (!weft_path_exists(path) || weft_video_reader_open(path, &tiny, &reader) != WEFT_OK)
        return false; /* no video, or a damaged one */
    say(item, &s);
    const weft_video_info *info = weft_video_reader_info(reader);
    bool same = info->frames == item->frames && info->width == item->width &&
                info->height == item->height && says(reader, "negative", item->negative);
    for (int i = 0; i < SAME; i++)
        same = same && says(reader, s.tag[i].key, s.tag[i].value);
    weft_video_reader_close(reader);
    return same;
}

/* Whole or not at all, at the end: ranks write there by turns. */
static weft_status append(const char *path, const weft_buf *line)
{
    weft_status_code status = WEFT_OK;
    const int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0)
        return weft_fail_errno("cannot write %s", path);
    (void)flock(fd, LOCK_EX);
    const off_t before = lseek(fd, 0, SEEK_END);
    for (int64_t done = 0; done < line->len && status == WEFT_OK;) {
        const ssize_t n = write(fd, line->data + done, (size_t)(line->len - done));
        if (n >= 0)
            done += n;
        else if (errno != EINTR)
            status = weft_fail_errno("cannot write %s", path);
    }
    if (status != WEFT_OK && before >= 0)
        (void)!ftruncate(fd, before);
    close(fd);
    return status;
}

static weft_status add_line(weft_gallery *g, const weft_gallery_item *item)
{
    char own[32];
    json_t *line =
        json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:f, s:s, s:f}", "file",
                  weft_gallery_name(item->file, g->writing, own), "prompt", item->prompt,
                  "negative", item->negative ? item->negative : "", "seed", (json_int_t)item->seed,
                  "frames", (json_int_t)item->frames, "height", (json_int_t)item->height, "width",
                  (json_int_t)item->width, "steps", (json_int_t)item->steps, "guidance",
                  item->guidance, "sampler", item->sampler, "fps", item->fps);
    if (line && g->facts)
        json_object_update(line, g->facts);
    char *text = line ? weft_json_line(line) : NULL,
         *path = weft_path_join(g->out, "prompts.jsonl");
    weft_buf out = {0};
    json_decref(line);
    if (text && path)
        weft_buf_printf(&out, "%s\n", text);
    const weft_status_code status = text && path && weft_buf_check(&out) == WEFT_OK
                                        ? append(path, &out)
                                        : weft_fail(WEFT_E_MEMORY, "out of memory");
    weft_buf_free(&out);
    weft_free(text);
    weft_free(path);
    return status;
}

static weft_status end(weft_gallery *g)
{
    weft_status_code status = weft_video_writer_finish(g->writer);
    weft_video_writer_close(g->writer);
    g->writer = NULL;
    if (status == WEFT_OK && g->o.raw)
        status = weft_file_commit(&g->array);
    if (status != WEFT_OK && g->o.raw)
        weft_file_abort(&g->array);
    if (status == WEFT_OK && g->folder)
        status = add_line(g, &g->o.items[g->writing]);
    weft_gallery_facts(g, NULL);
    g->writing = -1;
    return status;
}

/* Columns are spread evenly from the first to the last frame; short videos repeat frames. */
static void keep_for_sheet(weft_gallery *g, const weft_gallery_item *item, int64_t frame)
{
    const int64_t bytes = frame_bytes(item), last = item->frames - 1;
    for (int c = 0; c < SHEET_COLUMNS; c++)
        if ((last * c + (SHEET_COLUMNS - 1) / 2) / (SHEET_COLUMNS - 1) == frame)
            memcpy(g->cells[g->writing] + c * bytes, g->rgb, (size_t)bytes);
}

weft_status weft_gallery_frames(weft_gallery *g, int64_t number, int64_t first_frame, int64_t count,
                                const float *frames)
{
    const weft_gallery_item *item = &g->o.items[number];
    const int64_t values = frame_bytes(item);
    if (number != g->writing || first_frame == 0)
        WEFT_TRY(begin(g, number));
    if (g->o.raw)
        WEFT_TRY(weft_file_write(&g->array, frames, count * values * (int64_t)sizeof *frames));
    for (int64_t f = 0; f < count; f++) {
        weft_clip_to_u8(frames + f * values, 1, item->height, item->width, false, g->rgb);
        WEFT_TRY(weft_video_writer_rgb(g->writer, g->rgb, item->width * 3));
        if (g->sheet)
            keep_for_sheet(g, item, first_frame + f);
    }
    return first_frame + count == item->frames ? end(g) : WEFT_OK;
}

static weft_status write_sheet(weft_gallery *g)
{
    uint8_t *sheet = NULL;
    int64_t w, h;
    const weft_gallery_item *item = g->o.items;
    int64_t *frames = weft_alloc(g->o.count * (int64_t)sizeof *frames);
    if (!frames)
        return weft_fail(WEFT_E_MEMORY, "out of memory for the contact sheet");
    for (int64_t i = 0; i < g->o.count; i++)
        frames[i] = SHEET_COLUMNS;
    /* small videos are shown twice as large */
    const int64_t zoom = item->width <= 128 ? 2 : 1;
    weft_status_code status = weft_sheet_make(
        (const uint8_t *const *)g->cells, frames, g->o.count, item->width, item->height,
        SHEET_COLUMNS, item->width * zoom, item->height * zoom, 4, &sheet, &w, &h);
    if (status == WEFT_OK)
        status = weft_png_write(g->sheet, sheet, w, h);
    weft_free(sheet);
    weft_free(frames);
    return status;
}

weft_status weft_gallery_finish(weft_gallery *g)
{
    return g->sheet ? write_sheet(g) : WEFT_OK;
}

void weft_gallery_free(weft_gallery *g)
{
    if (!g)
        return;
    drop(g);
    json_decref(g->facts);
    for (int64_t i = 0; g->cells && i < g->o.count; i++)
        weft_free(g->cells[i]);
    weft_free(g->cells);
    weft_free(g->rgb);
    weft_free(g->out);
    weft_free(g->sheet);
    weft_free(g);
}
