#include "serve/token_limits.h"

#include <stdio.h>
#include <string.h>

/* Sets *jobs to the number of the owner's other jobs that wait or run. *seconds has their
 * predicted seconds, and the used seconds of a day. */
static weft_status count_others(weft_server *s, const weft_queue_job *job, int64_t *jobs,
                                double *seconds)
{
    weft_queue_owners owners = {0};
    weft_queue_entry *entries = NULL;
    int64_t count = 0;
    weft_status_code status = WEFT_OK;
    *jobs = 0;
    *seconds = 0;
    WEFT_GO(weft_queue_store_waiting(s->store, &entries, &count));
    WEFT_GO(weft_queue_store_owners(s->store, weft_server_time() - WEFT_QUEUE_DAY, &owners));
    for (int64_t i = 0; i < count; i++)
        if (entries[i].number != job->number &&
            !strcmp(owners.name[entries[i].owner], job->owner)) {
            ++*jobs;
            *seconds += entries[i].seconds;
        }
    for (int64_t i = 0; i < owners.count; i++)
        *seconds += !strcmp(owners.name[i], job->owner) ? owners.used[i] : 0;
out:
    weft_queue_owners_free(&owners);
    weft_free(entries);
    return status;
}

bool weft_token_limits_refuse(weft_server *s, const weft_queue_job *job, weft_serve_reply *reply)
{
    const weft_token_limits limits = weft_access_tokens_limits(&s->tokens, job->owner);
    int64_t jobs;
    double seconds;
    char text[160];
    if (!limits.jobs && limits.seconds <= 0)
        return false;
    if (count_others(s, job, &jobs, &seconds) != WEFT_OK) {
        *reply = weft_serve_own_error();
        return true;
    }
    seconds += job->remaining > 0 ? job->remaining : job->seconds;
    if (limits.jobs && jobs >= limits.jobs)
        snprintf(text, sizeof text,
                 "the token has %" PRId64 " jobs that wait or run, and its limit is %" PRId64, jobs,
                 limits.jobs);
    else if (limits.seconds > 0 && seconds > limits.seconds)
        snprintf(text, sizeof text,
                 "with this job the token has %.4g seconds in 24 hours, and its limit is %.4g",
                 seconds, limits.seconds);
    else
        return false;
    *reply = weft_serve_error(429, "token_limit", "", text);
    return true;
}
