#include "generate/jobs.h"

#include "base/config.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/utf8.h"
#include "generate/gallery.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

weft_status weft_jobs_add(weft_jobs *jobs, const char *text, int64_t length, const char *from,
                          int64_t place)
{
    WEFT_TRY(weft_grow((void **)&jobs->at, jobs->count, &jobs->capacity, sizeof *jobs->at));
    char *copy = weft_alloc(length + 1);
    if (!copy)
        return weft_fail(WEFT_E_MEMORY, "out of memory for a prompt");
    memcpy(copy, text, (size_t)length);
    jobs->at[jobs->count++] =
        (weft_job){.from = from, .place = place, .prompt = copy, .guidance = -1};
    if (memchr(text, '\0', (size_t)length) || !weft_utf8_valid(copy))
        return weft_fail(WEFT_E_FORMAT, "%s:%lld: the prompt is not text in UTF-8", from,
                         (long long)place);
    return WEFT_OK;
}

/* ---- lines of JSON -------------------------------------------------------------------------- */

static weft_status copy_text(const json_t *line, const char *key, const char *where, char **to)
{
    const char *text;
    WEFT_TRY(weft_json_get_string_or(line, key, where, NULL, &text));
    *to = text ? weft_strdup(text) : NULL;
    return text && !*to ? weft_fail(WEFT_E_MEMORY, "out of memory for a prompt") : WEFT_OK;
}

/* Below the folder, and a video. */
static weft_status check_out(const char *out, const char *where)
{
    if (!out)
        return WEFT_OK;
    if (strcmp(weft_path_extension(out), "mp4"))
        return weft_fail(WEFT_E_FORMAT, "%s: \"out\": %s: a video is written as .mp4", where, out);
    if (*out == '/' || !strncmp(out, "../", 3) || strstr(out, "/../"))
        return weft_fail(WEFT_E_FORMAT,
                         "%s: \"out\": %s: give a name below the folder that --out says", where,
                         out);
    return WEFT_OK;
}

static weft_status get_size(const json_t *line, const char *key, const char *where, int64_t most,
                            int64_t *to)
{
    WEFT_TRY(weft_json_get_i64_or(line, key, where, 0, to));
    if (json_object_get(line, key) && (*to < 1 || *to > most))
        return weft_fail(WEFT_E_FORMAT, "%s: \"%s\": %lld; from 1 to %lld", where, key,
                         (long long)*to, (long long)most);
    return WEFT_OK;
}

static weft_status read_line(weft_jobs *jobs, const json_t *line, const char *path, int64_t number)
{
    static const char *const known[] = {"prompt", "negative", "seed",     "frames", "height",
                                        "width",  "steps",    "guidance", "out"};
    char where[1100];
    const char *prompt;
    int64_t seed;
    snprintf(where, sizeof where, "%.1000s:%lld", path, (long long)number);
    if (!json_is_object(line))
        return weft_fail(WEFT_E_FORMAT, "%s: not an object like {\"prompt\": \"a dog\"}", where);
    WEFT_TRY(weft_json_only(line, where, known, WEFT_COUNT(known)));
    WEFT_TRY(weft_json_get_string(line, "prompt", where, &prompt));
    WEFT_TRY(weft_jobs_add(jobs, prompt, (int64_t)strlen(prompt), path, number));
    weft_job *j = &jobs->at[jobs->count - 1];
    WEFT_TRY(copy_text(line, "negative", where, &j->negative));
    WEFT_TRY(copy_text(line, "out", where, &j->out));
    WEFT_TRY(check_out(j->out, where));
    WEFT_TRY(weft_json_get_i64_or(line, "seed", where, 0, &seed));
    if (seed < 0)
        return weft_fail(WEFT_E_FORMAT, "%s: \"seed\": %lld; at least 0", where, (long long)seed);
    j->seed = (uint64_t)seed;
    j->seeded = json_object_get(line, "seed") != NULL;
    WEFT_TRY(get_size(line, "frames", where, 100000, &j->frames));
    WEFT_TRY(get_size(line, "height", where, 16384, &j->height));
    WEFT_TRY(get_size(line, "width", where, 16384, &j->width));
    WEFT_TRY(get_size(line, "steps", where, 10000, &j->steps));
    WEFT_TRY(weft_json_get_f64_or(line, "guidance", where, -1, &j->guidance));
    if (json_object_get(line, "guidance") && !(j->guidance >= 0 && j->guidance <= 100))
        return weft_fail(WEFT_E_FORMAT, "%s: \"guidance\": %g; from 0 to 100", where, j->guidance);
    return WEFT_OK;
}

static weft_status parse_line(weft_jobs *jobs, const char *text, int64_t length, const char *path,
                              int64_t number)
{
    json_t *line = NULL;
    WEFT_TRY(weft_json_parse_at(text, length, path, number, &line));
    const weft_status_code status = read_line(jobs, line, path, number);
    json_decref(line);
    return status;
}

static bool has_words(const char *line, int64_t length)
{
    for (int64_t i = 0; i < length; i++)
        if (line[i] != ' ' && line[i] != '\t')
            return true;
    return false;
}

weft_status weft_jobs_read(weft_jobs *jobs, const char *path)
{
    char *data;
    int64_t bytes;
    WEFT_TRY(weft_file_read(path, 1 << 28, &data, &bytes));
    weft_status_code status = WEFT_OK;
    const int64_t before = jobs->count;
    char *line = data;
    if (bytes >= 3 && !memcmp(data, "\xef\xbb\xbf", 3)) /* an editor's byte order mark is no text */
        line += 3;
    bool is_json = !strcmp(weft_path_extension(path), "jsonl"), begun = is_json;
    for (int64_t number = 1; status == WEFT_OK && line < data + bytes; number++) {
        int64_t len = 0; /* not strcspn: a NUL is to be seen, not to end the file */
        while (line + len < data + bytes && line[len] != '\r' && line[len] != '\n')
            len++;
        if (has_words(line, len) && *line != '#') {
            is_json = is_json || (!begun && line[strspn(line, " \t")] == '{');
            begun = true; /* lines are of the kind of the first that is no comment */
            status = is_json ? parse_line(jobs, line, len, path, number)
                             : weft_jobs_add(jobs, line, len, path, number);
        }
        line += len;
        line += line < data + bytes && *line == '\r' && line[1] == '\n' ? 2 : 1;
    }
    weft_free(data);
    if (status == WEFT_OK && jobs->count == before)
        return weft_fail(WEFT_E_FORMAT, "%s: no prompt in it: empty, or only comments", path);
    return status;
}

void weft_jobs_free(weft_jobs *jobs)
{
    for (int64_t i = 0; i < jobs->count; i++) {
        weft_free(jobs->at[i].prompt);
        weft_free(jobs->at[i].negative);
        weft_free(jobs->at[i].out);
    }
    weft_free(jobs->at);
    *jobs = (weft_jobs){0};
}

/* ---- names ---------------------------------------------------------------------------------- */

weft_status weft_jobs_check_names(const weft_jobs *jobs)
{
    json_t *taken = json_object();
    weft_status_code status = taken ? WEFT_OK : weft_fail(WEFT_E_MEMORY, "out of memory");
    for (int64_t i = 0; i < jobs->count && status == WEFT_OK; i++) {
        const weft_job *j = &jobs->at[i];
        char own[32];
        const char *name = weft_gallery_name(j->out, i, own);
        while (!strncmp(name, "./", 2)) /* ./a.mp4 is a.mp4 */
            name += 2;
        const json_t *before = json_object_get(taken, name);
        if (before) {
            const weft_job *b = &jobs->at[json_integer_value(before)];
            status = weft_fail(WEFT_E_FORMAT,
                               "%s:%lld: the video would be written to %s, and so would that of "
                               "%s:%lld; give one another \"out\"",
                               j->from, (long long)j->place, name, b->from, (long long)b->place);
        } else if (json_object_set_new(taken, name, json_integer(i))) {
            status = weft_fail(WEFT_E_MEMORY, "out of memory");
        }
    }
    json_decref(taken);
    return status;
}

/* ---- batches -------------------------------------------------------------------------------- */

bool weft_jobs_alike(const weft_job *a, const weft_job *b)
{
    return a->frames == b->frames && a->height == b->height && a->width == b->width &&
           a->steps == b->steps && a->guidance == b->guidance;
}

static double cost_of(const weft_job *j)
{
    return (double)j->frames * (double)j->height * (double)j->width * (double)j->steps *
           (j->guidance == 1 ? 1 : 2);
}

/* Jobs that are alike behind each other, in the order in which the first of each kind comes. */
static void put_in_order(const weft_jobs *jobs, int64_t *order)
{
    int64_t placed = 0;
    for (int64_t i = 0; i < jobs->count; i++)
        jobs->at[i].batch = -1;
    for (int64_t i = 0; i < jobs->count; i++)
        for (int64_t k = i; jobs->at[i].batch < 0 && k < jobs->count; k++)
            if (k > i && jobs->at[k].batch < 0 && weft_jobs_alike(&jobs->at[i], &jobs->at[k])) {
                jobs->at[k].batch = 0;
                order[placed++] = k;
            } else if (k == i) {
                order[placed++] = k;
            }
}

/* The dearest that nobody has to the team with the least: no team has more than one batch's cost
 * above the mean. */
static void deal(weft_batches *b, int teams, double *load)
{
    for (int64_t i = 0; i < b->count; i++)
        b->at[i].team = -1;
    for (int64_t n = 0; n < b->count; n++) {
        int64_t dear = -1;
        int least = 0;
        for (int64_t i = 0; i < b->count; i++)
            if (b->at[i].team < 0 && (dear < 0 || b->at[i].cost > b->at[dear].cost))
                dear = i;
        for (int t = 1; t < teams; t++)
            least = load[t] < load[least] ? t : least;
        b->at[dear].team = least;
        load[least] += b->at[dear].cost;
    }
}

weft_status weft_jobs_cut(weft_jobs *jobs, int64_t most, int teams, weft_batches *b)
{
    double *load = weft_alloc(teams * (int64_t)sizeof *load);
    *b = (weft_batches){.order = weft_alloc(jobs->count * (int64_t)sizeof *b->order),
                        .at = weft_alloc(jobs->count * (int64_t)sizeof *b->at)};
    if (!load || !b->order || !b->at) {
        weft_free(load);
        weft_batches_free(b);
        return weft_fail(WEFT_E_MEMORY, "out of memory for %lld prompts", (long long)jobs->count);
    }
    put_in_order(jobs, b->order);
    for (int64_t i = 0; i < jobs->count; i++) {
        weft_job *j = &jobs->at[b->order[i]];
        weft_batch *last = b->count ? &b->at[b->count - 1] : NULL;
        if (!last || last->count == most || !weft_jobs_alike(&jobs->at[b->order[last->first]], j)) {
            last = &b->at[b->count++];
            *last = (weft_batch){.first = i};
        }
        last->count++;
        last->cost += cost_of(j);
        j->batch = b->count - 1;
    }
    deal(b, teams, load);
    weft_free(load);
    return WEFT_OK;
}

void weft_batches_free(weft_batches *b)
{
    weft_free(b->order);
    weft_free(b->at);
    *b = (weft_batches){0};
}
