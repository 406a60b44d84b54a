/* Shot lists of many videos: JSON lines or scene lists of PySceneDetect, printed or in files. */
#include "curate/shot_job.h"

#include "base/fs.h"
#include "base/json.h"
#include "base/location.h"
#include "base/log.h"
#include "base/utf8.h"
#include "curate/shots/shots_video.h"
#include "curate/source_kind.h"

#include <stdio.h>
#include <string.h>

static weft_status add_json(const char *path, const weft_shot_list *list, weft_buf *to)
{
    for (int64_t i = 0; i < list->count; i++) {
        const weft_boundary *b = &list->boundary[i];
        char *name = weft_utf8_escape(path);
        json_t *text = name ? json_string(name) : NULL;
        char *quoted = text ? weft_json_line(text) : NULL;
        weft_buf_printf(to, "{\"file\":%s", quoted ? quoted : "");
        if (b->gradual)
            weft_buf_printf(to, ",\"type\":\"gradual\",\"start\":%" PRId64 ",\"end\":%" PRId64,
                            b->start, b->end);
        else
            weft_buf_printf(to, ",\"type\":\"cut\",\"frame\":%" PRId64, b->start);
        weft_buf_printf(to, ",\"score\":%.2f}\n", b->score);
        to->failed |= !quoted;
        weft_free(quoted);
        weft_free(name);
        json_decref(text);
    }
    return weft_buf_check(to);
}

static const char *timecode(int64_t frame, double fps, char text[32])
{
    const double seconds = (double)frame / fps;
    const int64_t ms = (int64_t)(seconds * 1000 + 0.5);
    snprintf(text, 32, "%02" PRId64 ":%02" PRId64 ":%02" PRId64 ".%03" PRId64, ms / 3600000,
             ms / 60000 % 60, ms / 1000 % 60, ms % 1000);
    return text;
}

/* Returns the frame of the cut; a gradual transition becomes a cut in its middle. */
static int64_t cut_frame(const weft_boundary *b)
{
    return b->gradual ? (b->start + b->end + 1) / 2 : b->start;
}

static weft_status add_csv(const weft_shot_list *list, weft_buf *to)
{
    const double fps = list->fps > 0 ? list->fps : 25;
    char a[32], b[32], c[32];
    weft_buf_printf(to, "Timecode List:");
    for (int64_t i = 0; i < list->count; i++)
        weft_buf_printf(to, ",%s", timecode(cut_frame(&list->boundary[i]), fps, a));
    weft_buf_printf(to, "\nScene Number,Start Frame,Start Timecode,Start Time (seconds),End Frame,"
                        "End Timecode,End Time (seconds),Length (frames),Length (timecode),"
                        "Length (seconds)\n");
    for (int64_t i = 0; i <= list->count; i++) {
        const int64_t start = i ? cut_frame(&list->boundary[i - 1]) : 0;
        const int64_t end = i < list->count ? cut_frame(&list->boundary[i]) : list->frames;
        weft_buf_printf(to, "%" PRId64 ",%lld,%s,%.3f,%" PRId64 ",%s,%.3f,%" PRId64 ",%s,%.3f\n",
                        i + 1, (long long)start + 1, timecode(start, fps, a), (double)start / fps,
                        end, timecode(end, fps, b), (double)end / fps, end - start,
                        timecode(end - start, fps, c), (double)(end - start) / fps);
    }
    return weft_buf_check(to);
}

/* `folder` NULL: `name` is the path. `footage` NULL: a file of this machine. */
static weft_status add_video(weft_shot_job *j, const char *folder, const char *name,
                             weft_footage *footage)
{
    WEFT_TRY(
        weft_grow((void **)&j->footage, j->path.count, &j->footage_capacity, sizeof *j->footage));
    j->footage[j->path.count] = footage;
    for (int i = 0; i < 2; i++) {
        weft_names *list = i ? &j->name : &j->path;
        WEFT_TRY(weft_grow((void **)&list->name, list->count, &list->capacity, sizeof *list->name));
        list->name[list->count] = i == 0 && folder
                                      ? weft_path_join(folder, name)
                                      : weft_strdup(i && !folder ? weft_path_base(name) : name);
        WEFT_TRY(WEFT_ALLOCATED(list->name[list->count++], "the list of files"));
    }
    return WEFT_OK;
}

static weft_status keep_footage(weft_shot_job *j, weft_footage *footage)
{
    weft_status_code status =
        weft_grow((void **)&j->opened, j->opened_count, &j->opened_capacity, sizeof *j->opened);
    if (status == WEFT_OK)
        j->opened[j->opened_count++] = footage;
    else
        weft_footage_close(footage);
    return status;
}

/* Adds a remote video: a location that has no objects below. */
static weft_status add_remote_video(weft_shot_job *j, const char *location)
{
    weft_footage *footage;
    WEFT_TRY(weft_footage_open_video(location, &footage));
    WEFT_TRY(keep_footage(j, footage));
    return add_video(j, NULL, location, footage);
}

/* Adds the videos of a folder or a bucket, or a remote video. */
static weft_status add_all(weft_shot_job *j, const char *path)
{
    const bool remote = weft_location_is_remote(path);
    weft_names files = {0}, others = {0};
    weft_footage *footage = NULL;
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_footage_open(path, remote ? "" : NULL, j->out, &footage, &files, &others));
    WEFT_GO(keep_footage(j, footage));
    if (remote && files.count == 0)
        WEFT_GO(add_remote_video(j, path));
    const int64_t before = j->path.count;
    for (int64_t i = 0; i < files.count; i++)
        if (weft_source_kind_of(files.name[i]) == WEFT_SOURCE_KIND_VIDEO)
            WEFT_GO(add_video(j, path, files.name[i], remote ? footage : NULL));
    if (j->path.count == before && files.count + others.count + !remote > 0)
        WEFT_GO(weft_error(WEFT_MSG_FOOTAGE_NOT_FOUND, WEFT_AT(.file = path),
                           "the folder has no video"));
out:
    weft_names_free(&files);
    weft_names_free(&others);
    return status;
}

weft_status weft_shot_job_add(weft_shot_job *j, const char *path)
{
    if (weft_location_is_bucket(path) || weft_path_is_dir(path))
        return add_all(j, path);
    return weft_location_is_remote(path) ? add_remote_video(j, path)
                                         : add_video(j, NULL, path, NULL);
}

static size_t stem_length(const char *name)
{
    const char *base = weft_path_base(name), *dot = strrchr(base, '.');
    return dot && dot > base ? (size_t)(dot - name) : strlen(name);
}

/* Saves a list under the video's name without extension, unless another video has the same name. */
static weft_status save_list(const weft_shot_job *j, int64_t which, const weft_buf *text)
{
    const char *name = j->name.name[which];
    size_t length = stem_length(name);
    weft_buf path = {0};
    for (int64_t i = 0; i < j->name.count; i++)
        if (i != which && stem_length(j->name.name[i]) == stem_length(name) &&
            strncmp(j->name.name[i], name, stem_length(name)) == 0)
            length = strlen(name);
    weft_buf_printf(&path, "%s/%.*s%s", j->out, (int)length, name,
                    j->csv ? "-Scenes.csv" : ".jsonl");
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_buf_check(&path));
    WEFT_GO(weft_make_parent(path.data));
    WEFT_GO(weft_file_write_atomic(path.data, text->data ? text->data : "", text->len));
out:
    weft_buf_free(&path);
    return status;
}

/* Sets *unreadable if the error is of the video. An error of the network is not. */
static weft_status find_transitions(const weft_shot_job *j, int64_t which, weft_shot_list *list,
                                    bool *unreadable)
{
    weft_footage *footage = j->footage[which];
    weft_footage_video video = {.path = j->path.name[which]};
    weft_status_code status = WEFT_OK;
    *unreadable = !footage;
    if (footage)
        WEFT_GO(weft_footage_video_open(footage, video.path, NULL, NULL, &video));
    *unreadable = true;
    status = weft_shots_find(video.path, &j->options, j->threads, list);
out:
    if (footage)
        status = weft_footage_video_close(&video, status);
    *unreadable |= status != WEFT_OK && weft_error_class() == WEFT_MSG_VIDEO_UNREADABLE;
    return status;
}

/* *read: the video was read. An error with *read is an output error. */
static weft_status find_in(const weft_shot_job *j, int64_t which, bool *read)
{
    const char *path = j->path.name[which];
    weft_shot_list list;
    weft_buf text = {0};
    bool unreadable;
    const weft_status_code found = find_transitions(j, which, &list, &unreadable);
    *read = found == WEFT_OK || !unreadable;
    WEFT_TRY(found);
    if (list.errors)
        weft_warning(WEFT_MSG_FOOTAGE_SKIPPED, WEFT_AT(.file = path, WEFT_NUMBER(list.errors)),
                     "%" PRId64 " damaged packets were skipped", list.errors);
    weft_debug("%s: %" PRId64 " of %" PRId64 " frames decoded", path, list.decoded, list.frames);
    weft_status_code status = WEFT_OK;
    WEFT_GO(j->csv ? add_csv(&list, &text) : add_json(path, &list, &text));
    if (j->out)
        WEFT_GO(save_list(j, which, &text));
    else if (text.len > 0)
        fwrite(text.data, 1, (size_t)text.len, stdout);
out:
    weft_buf_free(&text);
    weft_shot_list_free(&list);
    return status;
}

/* A damaged file does not stop the others; the exit status reports the failure. */
weft_status weft_shot_job_run(const weft_shot_job *j)
{
    const int64_t count = j->path.count;
    int64_t failed = 0;
    weft_progress progress;
    const bool shows = j->out && count > 1;
    if (shows)
        weft_progress_begin(&progress, "shots", count, 0);
    for (int64_t i = 0; i < count; i++) {
        bool read;
        const weft_status_code status = find_in(j, i, &read);
        if (status != WEFT_OK && (read || count == 1))
            return status;
        if (status != WEFT_OK) {
            weft_warn_error(WEFT_MSG_FOOTAGE_SKIPPED, "the file is skipped");
            failed++;
        }
        if (shows)
            weft_progress_update(&progress, i + 1, weft_path_base(j->path.name[i]));
    }
    if (shows)
        weft_progress_end(&progress, count, NULL);
    if (failed)
        return weft_error(WEFT_MSG_VIDEO_UNREADABLE, WEFT_AT(WEFT_NUMBER(failed)),
                          "%" PRId64 " of %" PRId64
                          " files could not be read; the warnings above name them",
                          failed, count);
    return WEFT_OK;
}

void weft_shot_job_free(weft_shot_job *j)
{
    weft_names_free(&j->path);
    weft_names_free(&j->name);
    for (int64_t i = 0; i < j->opened_count; i++)
        weft_footage_close(j->opened[i]);
    weft_free(j->opened);
    weft_free(j->footage);
}
