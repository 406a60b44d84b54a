#include "serve/batch_choice.h"

#include "base/config.h"
#include "base/fs.h"
#include "serve/input_files.h"
#include "serve/server_parts.h"
#include "serve/video_request.h"

#include <string.h>

/* Jobs of the queue that are compared with the first one. */
enum { LOOKED_AT = 64 };

bool weft_batch_is_equal(const json_t *a, const json_t *b)
{
    static const char *const own[] = {"prompt", "negative_prompt", "seed"};
    json_t *x = json_copy((json_t *)(uintptr_t)a), *y = json_copy((json_t *)(uintptr_t)b);
    for (int i = 0; x && y && i < WEFT_COUNT(own); i++) {
        json_object_del(x, own[i]);
        json_object_del(y, own[i]);
    }
    const bool equal =
        x && y && json_equal(x, y) && !weft_inputs_of(a) && !json_object_get(a, "feature_cache");
    json_decref(x);
    json_decref(y);
    return equal;
}

double weft_batch_ratio(const weft_price *alone, const weft_price *together)
{
    const bool measured = alone->measured > 0 && together->measured > 0;
    const double one = measured ? alone->measured : alone->seconds;
    return one > 0 ? (measured ? together->measured : together->seconds) / one : 1;
}

/* A finished video must only be reported, which the worker does with a job alone. */
static bool is_finished(const weft_server *s, const char *id)
{
    char *folder = weft_server_job_folder(s, id),
         *path = folder ? weft_path_join(folder, "video.mp4") : NULL;
    const bool found = !path || weft_path_exists(path);
    weft_free(folder);
    weft_free(path);
    return found;
}

static bool may_join(const weft_server *s, const weft_queue_job *job)
{
    return job->state == WEFT_QUEUE_QUEUED && !job->crashes && job->number > s->unbatched &&
           !is_finished(s, job->id);
}

/* Whether `job` can be added to a batch of `first`. Jobs at different steps would run in
 * sequence; the members of a batch that was stopped have equal seconds. */
static bool joins(const weft_server *s, const weft_queue_job *first, const json_t *request,
                  const weft_queue_job *job)
{
    const char *a = first->owner ? first->owner : "", *b = job->owner ? job->owner : "";
    if (job->number == first->number || job->priority != first->priority || !may_join(s, job) ||
        job->remaining != first->remaining ||
        (s->rules.policy == WEFT_QUEUE_FAIR && strcmp(a, b) != 0))
        return false;
    json_t *other = json_loads(job->request, 0, NULL);
    const bool equal = other && weft_batch_is_equal(request, other);
    json_decref(other);
    return equal;
}

static weft_status find_equal(weft_server *s, const json_t *request, int most, weft_queue_job *jobs,
                              int *count)
{
    const weft_queue_view *queue;
    WEFT_TRY(weft_server_queue(s, &queue));
    for (int64_t i = 0; i < queue->count && i < LOOKED_AT && *count < most; i++) {
        bool found = false;
        weft_queue_job *job = &jobs[*count];
        WEFT_TRY(weft_queue_store_at(s->store, queue->entries[i].number, job, &found));
        if (found && joins(s, &jobs[0], request, job))
            ++*count;
        else if (found)
            weft_queue_job_free(job);
    }
    return WEFT_OK;
}

/* The price of a video in a batch of `count`. NULL: it cannot be asked now. */
static weft_price *price_of(weft_server *s, const json_t *request, int count)
{
    bool asks = true; /* a refusal for this size lasts */
    const weft_served_model *m = weft_video_request_model(request, s->models, s->model_count);
    json_t *sized = json_copy((json_t *)(uintptr_t)request);
    if (sized && count > 1)
        json_object_set_new(sized, "batch", json_integer(count));
    weft_price *price =
        m && sized ? weft_prices_ask(&s->prices, sized, weft_served_model_stamp(m), &asks) : NULL;
    json_decref(sized);
    return price;
}

/* Predicted seconds that remain. */
static double left_of(const weft_queue_job *job)
{
    return job->remaining > 0 ? job->remaining : job->seconds;
}

static double sum_left(const weft_queue_job *jobs, int count)
{
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += left_of(&jobs[i]);
    return sum;
}

/* Whether the batch makes a job miss a deadline that it meets alone. */
static bool misses(const weft_server *s, const weft_queue_job *jobs, int count, double seconds)
{
    const double now = weft_server_time() + s->learned.start,
                 pace = s->learned.pace > 0 ? s->learned.pace : 1;
    for (int i = 0; i < count; i++)
        if (jobs[i].deadline > 0 && now + pace * seconds > jobs[i].deadline &&
            now + pace * sum_left(jobs, i + 1) <= jobs[i].deadline)
            return true;
    return false;
}

static bool is_member(const weft_queue_job *jobs, int count, int64_t number)
{
    int i = 0;
    while (i < count && jobs[i].number != number)
        i++;
    return i < count;
}

bool weft_batch_delays(const weft_queue_view *queue, const weft_queue_job *jobs, int count,
                       double seconds)
{
    for (int64_t i = 0; i < queue->count; i++) {
        const weft_queue_entry *e = &queue->entries[i];
        const weft_queue_forecast *f = &queue->forecasts[i];
        if (e->deadline <= 0 || f->end > e->deadline || is_member(jobs, count, e->number))
            continue;
        double later = seconds; /* less the members that run before it anyway */
        for (int k = 0; k < count; k++) {
            const weft_queue_forecast *own = weft_queue_view_find(queue, jobs[k].number);
            later -= own && own->position < f->position ? left_of(&jobs[k]) : 0;
        }
        if (f->end + queue->pace * later > e->deadline)
            return true;
    }
    return false;
}

/* The largest number of the `found` jobs that pays; 1: none, 0: a price is being asked. */
static int count_of(weft_server *s, const json_t *request, const weft_queue_job *jobs, int found,
                    double *seconds)
{
    const weft_queue_view *queue;
    weft_price *one = price_of(s, request, 1);
    if (!one)
        return 1;
    const weft_price alone = *one; /* the next call may move it */
    if (alone.state < WEFT_PRICE_KNOWN)
        return 0;
    if (weft_server_queue(s, &queue) != WEFT_OK)
        return 1;
    for (int n = found; n > 1 && alone.state == WEFT_PRICE_KNOWN; n--) {
        const weft_price *price = price_of(s, request, n);
        if (price && price->state < WEFT_PRICE_KNOWN)
            return 0;
        const double ratio =
            price && price->state == WEFT_PRICE_KNOWN ? weft_batch_ratio(&alone, price) : 1;
        *seconds = ratio * sum_left(jobs, n);
        if (ratio < 1 && !misses(s, jobs, n, *seconds) &&
            !weft_batch_delays(queue, jobs, n, *seconds))
            return n;
    }
    return 1;
}

weft_status weft_batch_choose(weft_server *s, int most, weft_queue_job *jobs, int *count,
                              double *seconds)
{
    json_t *request = json_loads(jobs[0].request, 0, NULL);
    int found = 1, taken = 1;
    weft_status_code status = WEFT_OK;
    if (most > 1 && request && may_join(s, &jobs[0]) && !weft_inputs_of(request))
        WEFT_GO(find_equal(s, request, most, jobs, &found));
    if (found > 1)
        taken = count_of(s, request, jobs, found, seconds);
    if (taken == 1)
        *seconds = left_of(&jobs[0]);
out:
    for (int i = status == WEFT_OK && taken ? taken : 1; i < found; i++)
        weft_queue_job_free(&jobs[i]);
    *count = taken;
    json_decref(request);
    return status;
}

void weft_batch_measured(weft_server *s, const json_t *request, int count, double seconds)
{
    weft_price *price = price_of(s, request, count);
    const double own = seconds / count;
    if (price && price->state == WEFT_PRICE_KNOWN && own > 0)
        price->measured = price->measured > 0 ? 0.5 * (price->measured + own) : own;
}
