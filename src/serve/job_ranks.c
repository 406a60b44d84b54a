#include "serve/job_ranks.h"

#include "serve/job_layout.h"

#include <stdlib.h>
#include <string.h>

/* A job without prices has the layout that its worker chooses. */
static void set(json_t *request, int64_t ranks, double *seconds)
{
    const json_t *degree = weft_job_layout_degree(request, ranks);
    json_t *layout = json_object_get(degree, "layout");
    json_object_set_new(request, "ranks", json_integer(ranks));
    if (layout)
        json_object_set(request, "layout", layout);
    else
        json_object_del(request, "layout");
    if (degree)
        *seconds = json_number_value(json_object_get(degree, "seconds"));
}

weft_status weft_job_set_ranks(weft_queue_store *store, weft_queue_job *job, int64_t ranks,
                               double *seconds)
{
    json_t *request = json_loads(job->request, 0, NULL);
    char *text = NULL, *copy = NULL;
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(request, "a request"));
    set(request, ranks, seconds);
    text = json_dumps(request, JSON_COMPACT);
    copy = text ? weft_strdup(text) : NULL;
    WEFT_GO(WEFT_ALLOCATED(copy, "a request"));
    if (strcmp(copy, job->request) != 0) {
        weft_free(job->request);
        job->request = copy;
        copy = NULL;
        WEFT_GO(weft_queue_store_edit(store, job));
    }
out:
    weft_free(copy);
    free(text);
    json_decref(request);
    return status;
}
