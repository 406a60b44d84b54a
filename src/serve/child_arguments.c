#include "serve/child_arguments.h"

#include "serve/input_files.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void add(weft_child_arguments *a, const char *option, const char *value)
{
    a->at[a->count++] = (char *)option;
    if (value)
        a->at[a->count++] = (char *)value;
}

static void add_i64(weft_child_arguments *a, const char *option, const json_t *request,
                    const char *key)
{
    char *text = a->number[a->numbers++];
    snprintf(text, WEFT_CHILD_NUMBER, "%" PRId64,
             (int64_t)json_integer_value(json_object_get(request, key)));
    add(a, option, text);
}

static void add_f64(weft_child_arguments *a, const char *option, const json_t *request,
                    const char *key)
{
    char *text = a->number[a->numbers++];
    snprintf(text, WEFT_CHILD_NUMBER, "%.17g", json_number_value(json_object_get(request, key)));
    add(a, option, text);
}

/* The limit of a rank, or its share of all memory of the machine: a video that never fits is
 * refused before its job exists, and the price has the tiles of the limit. */
static void add_memory(weft_child_arguments *a, const weft_server *s)
{
    const char *given = s->options->memory;
    char *text = a->number[a->numbers++];
    if (given && strcmp(given, "auto") != 0)
        snprintf(text, WEFT_CHILD_NUMBER, "%s", given);
    else
        snprintf(text, WEFT_CHILD_NUMBER, "%" PRId64,
                 (int64_t)sysconf(_SC_PHYS_PAGES) * (int64_t)sysconf(_SC_PAGESIZE) /
                     s->options->ranks);
    add(a, "--memory-limit", text);
}

/* Ranks of a request: jobs that share the ranks of the server have a part. */
static int64_t ranks_of(const weft_server *s, const json_t *request)
{
    const int64_t ranks = json_integer_value(json_object_get(request, "ranks"));
    return s->shares && ranks > 0 ? ranks : s->options->ranks;
}

/* The layout of a request that the server's ranks have; NULL: none. A server that was started with
 * other options ignores the layouts of earlier jobs. */
static const char *layout_of(const weft_server *s, const json_t *request)
{
    const char *layout = json_string_value(json_object_get(request, "layout"));
    return layout && weft_server_chooses_layouts(s) &&
                   weft_job_layout_ranks(layout) == ranks_of(s, request)
               ? layout
               : NULL;
}

/* The layout of several ranks. Returns whether the child chooses one. */
static bool add_layout(weft_child_arguments *a, const weft_server *s, const json_t *request)
{
    const char *layout = layout_of(s, request);
    char *keys[WEFT_JOB_LAYOUT_KEYS];
    const int count = layout ? weft_job_layout_split(layout, a->layout, keys) : 0;
    for (int i = 0; i < count; i++)
        add(a, "--parallel", keys[i]);
    if (!layout && weft_server_chooses_layouts(s)) {
        if (ranks_of(s, request) > 1)
            add(a, "--parallel", "auto");
        return ranks_of(s, request) > 1;
    }
    for (int i = 0; !layout && i < s->options->parallel_count; i++)
        add(a, "--parallel", s->options->parallel[i]);
    return false;
}

/* An estimate has these options, too. */
static void add_compute(weft_child_arguments *a, const weft_server *s, const json_t *request)
{
    const char *layout = layout_of(s, request);
    weft_compute compute = weft_compute_of(request);
    if (layout && weft_job_layout_streams(layout))
        compute.value[WEFT_COMPUTE_WEIGHTS] = "stream";
    for (int i = 0; i < WEFT_COMPUTE_FIELDS; i++)
        if (strcmp(compute.value[i], weft_compute_kinds[i].values[0]) != 0)
            add(a, weft_compute_kinds[i].option, compute.value[i]);
}

static void add_inputs(weft_child_arguments *a, const json_t *request)
{
    const char *sampler = json_string_value(json_object_get(request, "sampler"));
    if (sampler && *sampler)
        add(a, "--sampler", sampler);
    a->count += weft_method_arguments(request, a->method, a->at + a->count);
    a->count += weft_inputs_arguments(request, a->at + a->count);
    if (json_number_value(json_object_get(request, "strength")) > 0)
        add_f64(a, "--strength", request, "strength");
}

void weft_child_arguments_estimate(const weft_server *s, const weft_served_model *m,
                                   const json_t *request, weft_child_arguments *a)
{
    add(a, s->program, "estimate");
    add(a, "--model", m->folder);
    add_i64(a, "--frames", request, "frames");
    add_i64(a, "--height", request, "height");
    add_i64(a, "--width", request, "width");
    if (!weft_method_steps(request))
        add_i64(a, "--steps", request, "steps");
    add_f64(a, "--guidance-scale", request, "guidance_scale");
    if (json_integer_value(json_object_get(request, "batch")) > 1)
        add_i64(a, "--batch-size", request, "batch");
    add_memory(a, s);
    if (s->cluster)
        add(a, "--on", s->cluster);
    if (ranks_of(s, request) > 1) {
        char *text = a->number[a->numbers++];
        snprintf(text, WEFT_CHILD_NUMBER, "%" PRId64, ranks_of(s, request));
        add(a, "--ranks", text);
    }
    (void)add_layout(a, s, request);
    add_compute(a, s, request);
    add_inputs(a, request);
    add(a, "--json", NULL);
}

weft_status weft_child_arguments_generate(const weft_server *s, const weft_served_model *m,
                                          const json_t *request, int batch, weft_child_arguments *a)
{
    WEFT_TRY(weft_served_loras_options(
        &s->loras, json_string_value(json_object_get(request, "lora")), a->loras, &a->lora_count));
    add(a, "--model", m->folder);
    if (batch > 1) {
        char *text = a->number[a->numbers++];
        snprintf(text, WEFT_CHILD_NUMBER, "%d", batch);
        add(a, "--batch-size", text);
    }
    add(a, "--prompts", batch > 1 ? WEFT_BATCH_LIST : "request.jsonl");
    add(a, "--out", batch > 1 ? "." : "video.mp4");
    add(a, "--resume", NULL);
    if (!json_object_get(request, "feature_cache")) /* a cache belongs to a job alone */
        add(a, "--split-states", NULL);
    if (json_number_value(json_object_get(request, "fps")) > 0)
        add_f64(a, "--fps", request, "fps");
    add_compute(a, s, request);
    add_inputs(a, request);
    if (json_integer_value(json_object_get(request, "preview")) > 0)
        add_i64(a, "--preview-interval", request, "preview");
    if (s->options->backend)
        add(a, "--backend", s->options->backend);
    if (s->options->memory && !s->shares)
        add(a, "--memory-limit", s->options->memory);
    if (s->shares)
        add_memory(a, s); /* the free memory is the one of all workers */
    if (add_layout(a, s, request) && s->cluster)
        add(a, "--on", s->cluster);
    for (int i = 0; i < a->lora_count; i++)
        add(a, "--lora", a->loras[i]);
    return WEFT_OK;
}

void weft_child_arguments_free(weft_child_arguments *a)
{
    for (int i = 0; i < a->lora_count; i++)
        weft_free(a->loras[i]);
    a->lora_count = 0;
}
