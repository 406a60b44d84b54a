#include "curate/curate_worker.h"

#include "base/interrupt.h"
#include "base/log.h"
#include "base/memory.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

static weft_status invalid(const char *line, const char *why)
{
    return weft_error(WEFT_MSG_TASK_INVALID, WEFT_AT(.value = line), "%s", why);
}

/* An array of strings of a task. */
static weft_status names_of(const char *line, const json_t *task, const char *key, json_t **names)
{
    size_t i;
    const json_t *name;
    *names = json_object_get(task, key);
    bool valid = json_is_array(*names);
    json_array_foreach(*names, i, name) valid &= json_is_string(name);
    return valid ? WEFT_OK : invalid(line, "the line has no array of names for its task");
}

static weft_status list(weft_curate_session *s, json_t *task, bool clips)
{
    json_t *names = json_array(), *stages = json_array();
    const weft_status_code status = weft_curate_session_list(s, clips, names, stages);
    json_object_set_new(task, "videos", names);
    json_object_set_new(task, "stages", stages);
    return status;
}

static weft_status analyse(weft_curate_session *s, json_t *task, const char *video)
{
    bool unscored = false;
    WEFT_TRY(weft_curate_session_analyse(s, video, &unscored));
    json_object_set_new(task, "unscored", json_boolean(unscored));
    return WEFT_OK;
}

static weft_status write_clips(weft_curate_session *s, json_t *task, const char *video)
{
    int64_t clips = 0;
    json_t *ids = json_array();
    const weft_status_code status = weft_curate_session_write(s, video, &clips, ids);
    json_object_set_new(task, "clips", json_integer(clips));
    json_object_set_new(task, "uncaptioned", ids);
    return status;
}

static weft_status caption(weft_curate_session *s, json_t *task, const json_t *clips)
{
    weft_curate_report report = {0};
    WEFT_TRY(weft_curate_session_caption(s, clips, &report));
    json_object_set_new(task, "captions", json_integer(report.captions_made));
    json_object_set_new(task, "failed", json_integer(report.captions_failed));
    return WEFT_OK;
}

static weft_status score(weft_curate_session *s, json_t *task, const json_t *videos)
{
    int64_t loaded = 0;
    WEFT_TRY(weft_curate_session_score(s, videos, &loaded));
    json_object_set_new(task, "loaded", json_integer(loaded));
    return WEFT_OK;
}

static weft_status run_task(weft_curate_session *s, const char *line, json_t *task)
{
    const char *what = json_string_value(json_object_get(task, "task")),
               *video = json_string_value(json_object_get(task, "video"));
    const double began = weft_now();
    json_t *names;
    if (!what)
        return invalid(line, "the line has no \"task\"");
    if (!strcmp(what, "list") || !strcmp(what, "list-clips"))
        return list(s, task, what[4] != 0);
    if (!strcmp(what, "score")) {
        WEFT_TRY(names_of(line, task, "videos", &names));
        WEFT_TRY(score(s, task, names));
    } else if (!strcmp(what, "caption")) {
        WEFT_TRY(names_of(line, task, "clips", &names));
        WEFT_TRY(caption(s, task, names));
    } else if (strcmp(what, "analyse") != 0 && strcmp(what, "write") != 0) {
        return invalid(line, "\"task\" is list, analyse, score, list-clips, write or caption");
    } else if (!video) {
        return invalid(line, "the line has no \"video\"");
    } else {
        WEFT_TRY(*what == 'a' ? analyse(s, task, video) : write_clips(s, task, video));
    }
    json_object_set_new(task, "seconds", json_real(weft_now() - began));
    return WEFT_OK;
}

/* Runs the task of a line. *task: the line's JSON, if it is JSON. */
static weft_status run_line(weft_curate_session *s, const char *line, int64_t bytes, json_t **task)
{
    if (weft_json_parse(line, bytes, "task", task) != WEFT_OK)
        return invalid(line, "the line is not JSON");
    if (!json_is_object(*task))
        return invalid(line, "the line is not an object");
    return run_task(s, line, *task);
}

/* Answers a line. Errors, which have no answer, are a stop of the worker and a run that has taken
 * the output: the session's records may be outdated, and another worker repeats the task. */
static weft_status answer(weft_curate_session *s, const char *line, int64_t bytes, FILE *results)
{
    json_t *task = NULL;
    const weft_status_code status = run_line(s, line, bytes, &task);
    if (status == WEFT_E_CANCELLED ||
        (status != WEFT_OK && weft_error_class() == WEFT_MSG_FOLDER_LOCKED)) {
        json_decref(task);
        return status;
    }
    if (!json_is_object(task)) {
        json_decref(task);
        task = json_object();
    }
    json_object_set_new(task, "done", json_boolean(status == WEFT_OK));
    if (status != WEFT_OK) {
        json_object_set_new(task, "error", json_string(weft_message_id(weft_error_class())));
        json_object_set_new(task, "message", json_string(weft_error_message()));
        weft_error_clear();
    }
    char *text = weft_json_line(task);
    json_decref(task);
    WEFT_TRY(WEFT_ALLOCATED(text, "a result"));
    const bool written = fprintf(results, "%s\n", text) > 0 && fflush(results) == 0;
    weft_free(text);
    return written ? WEFT_OK
                   : weft_error_errno(WEFT_AT(.file = "standard output"), "cannot write a result");
}

/* Answers the complete lines of the buffer, and removes them. */
static weft_status answer_lines(weft_curate_session *s, weft_buf *text, FILE *results)
{
    char *line = text->data, *end;
    while ((end = memchr(line, '\n', (size_t)(text->data + text->len - line)))) {
        *end = 0;
        if (line[strspn(line, " \t\r")])
            WEFT_TRY(answer(s, line, end - line, results));
        line = end + 1;
    }
    text->len -= line - text->data;
    memmove(text->data, line, (size_t)text->len);
    return WEFT_OK;
}

weft_status weft_curate_worker_run(weft_curate_session *s, int tasks, FILE *results)
{
    char piece[4096];
    weft_buf text = {0};
    weft_status_code status = WEFT_OK;
    for (ssize_t bytes = 1; bytes != 0;) {
        struct pollfd polled = {.fd = tasks, .events = POLLIN};
        WEFT_GO(weft_interrupt_check()); /* a signal does not wake this thread */
        if (poll(&polled, 1, 200) == 0)
            continue;
        bytes = read(tasks, piece, sizeof piece);
        if (bytes < 0 && errno != EINTR)
            WEFT_GO(weft_error_errno(WEFT_AT(.file = "standard input"), "cannot read a task"));
        if (bytes == 0 && text.len > 0) /* a last line without its end */
            weft_buf_append(&text, "\n", 1);
        else if (bytes > 0)
            weft_buf_append(&text, piece, bytes);
        WEFT_GO(weft_buf_check(&text));
        if (text.len > 0)
            WEFT_GO(answer_lines(s, &text, results));
    }
out:
    weft_buf_free(&text);
    return status;
}
