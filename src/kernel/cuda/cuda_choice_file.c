#include "kernel/cuda/cuda_choice_file.h"

#include "base/fs.h"
#include "base/path_stamp.h"
#include "kernel/cuda/cuda_verdict.h"

#include <stdio.h>
#include <string.h>

/* The lines that were read. Another process may have changed the file if its stamp differs. */
static struct {
    char *path;      /* NULL: none were read */
    uint64_t stamp;  /* of the file when it was read or written */
    json_t *choices; /* by key */
    bool is_torn;    /* a line is damaged: the next choice writes the file from scratch */
} state;

void weft_cuda_choice_file_forget(void)
{
    json_decref(state.choices);
    state.choices = NULL;
    weft_free(state.path);
    state.path = NULL;
    state.stamp = 0;
}

static weft_status_code keep(void *user, json_t *choice)
{
    const char *key = json_string_value(json_object_get(choice, "key"));
    (void)user;
    if (key && json_object_set(state.choices, key, choice))
        return weft_no_memory("the choices of kernels");
    return WEFT_OK;
}

/* Whether the last line of the file has its end: a kill or a full disk may have truncated it. A
 * file that does not exist or is empty has no torn line. */
static bool has_end(const char *path)
{
    FILE *file = fopen(path, "r");
    const bool ends = !file || fseek(file, -1, SEEK_END) != 0 || fgetc(file) == '\n';
    if (file)
        fclose(file);
    return ends;
}

/* Reads the file of this GPU and these libraries, if it changed. */
static weft_status refresh(void)
{
    char *path;
    WEFT_TRY(weft_cuda_verdicts_path("-choices.jsonl", &path));
    const uint64_t stamp = weft_path_stamp(0, path, 0);
    if (state.path && !strcmp(state.path, path) && state.stamp == stamp) {
        weft_free(path);
        return WEFT_OK;
    }
    weft_cuda_choice_file_forget();
    state.path = path;
    state.stamp = stamp;
    state.choices = json_object();
    WEFT_TRY(WEFT_ALLOCATED(state.choices, "the choices of kernels"));
    state.is_torn = weft_path_exists(path) &&
                    (weft_json_log_lines(path, keep, NULL) != WEFT_OK || !has_end(path));
    if (state.is_torn)
        weft_error_clear();
    return WEFT_OK;
}

weft_status weft_cuda_choice_file_find(const char *key, const json_t **stored)
{
    WEFT_TRY(refresh());
    *stored = json_object_get(state.choices, key);
    return WEFT_OK;
}

weft_status weft_cuda_choice_file_all(json_t **choices)
{
    WEFT_TRY(refresh());
    *choices = state.choices;
    return WEFT_OK;
}

static weft_status put_line(weft_buf *out, const json_t *choice)
{
    char *line = weft_json_line(choice);
    WEFT_TRY(WEFT_ALLOCATED(line, "the choices of kernels"));
    weft_buf_printf(out, "%s\n", line);
    weft_free(line);
    return weft_buf_check(out);
}

/* Replaces the file by the lines that could be read, so that a kill leaves the old or the new. */
static weft_status repair(void)
{
    const char *key;
    json_t *choice;
    weft_buf lines = {0};
    weft_status_code status = WEFT_OK;
    json_object_foreach(state.choices, key, choice)
    {
        WEFT_GO(put_line(&lines, choice));
    }
    WEFT_GO(weft_file_write_atomic(state.path, lines.data ? lines.data : "", lines.len));
    state.is_torn = false;
out:
    weft_buf_free(&lines);
    return status;
}

static weft_status append(const json_t *choice)
{
    weft_buf line = {0};
    weft_status_code status = put_line(&line, choice);
    FILE *file = status == WEFT_OK ? fopen(state.path, "a") : NULL;
    const bool written = file && fwrite(line.data, 1, (size_t)line.len, file) == (size_t)line.len;
    if (file && fclose(file) == 0 && written) /* a full disk is seen by fclose() */
        goto out;
    WEFT_GO(status);
    status = weft_error_errno(WEFT_AT(.file = state.path), "the choices of kernels");
out:
    weft_buf_free(&line);
    return status;
}

weft_status weft_cuda_choice_file_add(json_t *choice)
{
    weft_status_code status = WEFT_OK;
    WEFT_GO(refresh());
    if (state.is_torn)
        WEFT_GO(repair());
    WEFT_GO(append(choice));
    WEFT_GO(keep(NULL, choice));
    state.stamp = weft_path_stamp(0, state.path, 0);
out:
    json_decref(choice);
    return status;
}
