#include "serve/status_api.h"

#include "base/log.h"
#include "serve/video_request.h"

weft_serve_reply weft_status_health(void)
{
    return weft_serve_json(200, json_pack("{s:s, s:s}", "status", "ok", "version", WEFT_VERSION));
}

weft_serve_reply weft_status_ready(const weft_server *s)
{
    return s->stopping ? weft_serve_error(503, "stopping", NULL, "the server is stopping")
                       : weft_serve_json(200, json_pack("{s:s}", "status", "ready"));
}

weft_serve_reply weft_status_models(const weft_server *s)
{
    json_t *data = json_array();
    for (int i = 0; data && i < s->model_count; i++)
        json_array_append_new(data, json_pack("{s:s, s:s, s:i, s:s}", "id", s->models[i].name,
                                              "object", "model", "created", 0, "owned_by", "weft"));
    return weft_serve_json(200, json_pack("{s:s, s:o}", "object", "list", "data", data));
}

weft_serve_reply weft_status_loras(const weft_server *s)
{
    return weft_serve_json(
        200, json_pack("{s:s, s:o}", "object", "list", "data", weft_served_loras_json(&s->loras)));
}

weft_serve_reply weft_status_capabilities(const weft_server *s)
{
    json_t *models = json_array();
    for (int i = 0; models && i < s->model_count; i++)
        json_array_append_new(models, weft_served_model_json(&s->models[i]));
    return weft_serve_json(
        200, json_pack("{s:o, s:o, s:s, s:{s:i, s:i, s:i}, s:b, s:[s, s, s, s, s, s, s, s, s, "
                       "s]}",
                       "models", models, "loras", weft_served_loras_json(&s->loras), "policy",
                       s->options->policy, "limits", "prompt_bytes", WEFT_REQUEST_PROMPT,
                       "json_bytes", WEFT_JSON_LIMIT, "form_bytes", WEFT_FORM_LIMIT, "webhooks",
                       s->options->webhook_count > 0, "features", "price", "cancel", "pause",
                       "events", "request_id", "remix", "edit", "move", "duplicate", "preview"));
}

/* ---- metrics -------------------------------------------------------------------------------- */

static void put_head(weft_buf *out, const char *name, const char *type, const char *help)
{
    weft_buf_printf(out, "# HELP weft_serve_%s %s\n# TYPE weft_serve_%s %s\n", name, help, name,
                    type);
}

static void put_one(weft_buf *out, const char *name, const char *type, const char *help,
                    double value)
{
    put_head(out, name, type, help);
    weft_buf_printf(out, "weft_serve_%s %.17g\n", name, value);
}

/* A label's value: names of models may have quotes and backslashes. */
static void put_label(weft_buf *out, const char *name, const json_t *value)
{
    weft_buf_printf(out, "%s=\"", name);
    for (const char *at = json_string_value(value); at && *at; at++)
        weft_buf_printf(out, "%s%c", *at == '"' || *at == '\\' ? "\\" : "", *at);
    weft_buf_printf(out, "\"");
}

static void put_loaded(weft_buf *out, const weft_served_group *g)
{
    json_t *list = weft_loaded_weights_json(&g->weights);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        weft_buf_printf(out, "weft_serve_loaded_bytes{");
        put_label(out, "model", json_object_get(one, "model"));
        put_label(out, ",part", json_object_get(one, "part"));
        put_label(out, ",lora", json_object_get(one, "adapters"));
        weft_buf_printf(out, "} %" PRId64 "\n",
                        (int64_t)json_integer_value(json_object_get(one, "bytes")));
    }
    json_decref(list);
}

/* Several workers may have the same weights. */
static void put_weights(weft_buf *out, const weft_server *s)
{
    int64_t loads = 0, unloads = 0, steps = 0;
    put_head(out, "loaded_bytes", "gauge", "Bytes of loaded weights by model, part and LoRA.");
    for (const weft_served_group *g = s->groups; g < s->groups + s->group_count; g++) {
        put_loaded(out, g);
        loads += weft_loaded_weights_loads(&g->weights);
        unloads += weft_loaded_weights_unloads(&g->weights);
        steps += g->progress.done;
    }
    put_one(out, "loads_total", "counter", "Weights loaded.", (double)loads);
    put_one(out, "unloads_total", "counter", "Weights unloaded.", (double)unloads);
    put_one(out, "step", "gauge", "Finished steps of the running job.", (double)steps);
}

weft_serve_reply weft_status_metrics(weft_server *s)
{
    int64_t counts[WEFT_QUEUE_STATES];
    const weft_queue_view *queue;
    weft_buf out = {0};
    double seconds = 0;
    if (weft_queue_store_count(s->store, counts) != WEFT_OK ||
        weft_server_queue(s, &queue) != WEFT_OK)
        return weft_serve_own_error();
    for (int64_t i = 0; i < queue->count; i++)
        seconds += queue->entries[i].seconds;
    put_head(&out, "jobs", "gauge", "Stored jobs by state.");
    for (int i = 0; i < WEFT_QUEUE_STATES; i++)
        weft_buf_printf(&out, "weft_serve_jobs{state=\"%s\"} %" PRId64 "\n",
                        weft_queue_state_name((weft_queue_state)i), counts[i]);
    put_one(&out, "queued_seconds", "gauge", "Predicted seconds of all unfinished jobs.", seconds);
    put_head(&out, "responses_total", "counter", "Responses by the class of their status.");
    for (int i = 1; i < 6; i++)
        weft_buf_printf(&out, "weft_serve_responses_total{status=\"%dxx\"} %" PRId64 "\n", i,
                        s->responses[i]);
    put_one(&out, "workers_started_total", "counter", "Workers started.", (double)s->workers);
    put_one(&out, "workers_crashed_total", "counter", "Workers killed.", (double)s->crashes);
    put_one(&out, "stops_total", "counter", "Running jobs stopped for other jobs or ranks.",
            (double)s->stops);
    put_one(&out, "stop_seconds", "gauge",
            "Seconds from the last request to stop a job until its worker had stopped.", s->freed);
    put_one(&out, "estimates_started_total", "counter", "Estimates started.", (double)s->estimates);
    put_weights(&out, s);
    return (weft_serve_reply){
        .status = out.failed ? 500 : 200, .text = out, .type = "text/plain; version=0.0.4"};
}
