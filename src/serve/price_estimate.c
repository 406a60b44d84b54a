#include "serve/price_estimate.h"

#include "serve/child_arguments.h"
#include "serve/http_server.h"
#include "serve/video_request.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

static weft_price *find_asked(const weft_price_estimate *e, weft_prices *p)
{
    for (int i = 0; i < p->count; i++)
        if (!strcmp(p->at[i].key, e->asked))
            return &p->at[i];
    return NULL;
}

void weft_price_estimate_advance(weft_price_estimate *e, weft_server *s)
{
    if (!e->child.pid || weft_child_read(&e->child))
        return;
    weft_price *price = find_asked(e, &s->prices);
    const int status = weft_child_wait(&e->child);
    const weft_buf *out = &e->child.output_text, *err = &e->child.error_text;
    if (price)
        weft_price_read(price, WIFEXITED(status) && WEXITSTATUS(status) == 0,
                        out->data ? out->data : "", err->data ? err->data : "");
    weft_child_close(&e->child);
    weft_http_server_wake(s);
}

/* The request of a price, from its key. */
static json_t *request_of(const weft_price *price)
{
    enum { PARTS = 11 + WEFT_COMPUTE_FIELDS };
    char name[256];
    int64_t n[6];
    double guidance, strength;
    int inputs;
    char compute[WEFT_COMPUTE_FIELDS][16], layout[WEFT_JOB_LAYOUT], method[WEFT_METHOD_TEXT];
    const char *slash = price->key + strlen(price->key);
    for (int i = 0; i < PARTS; i++) /* the name may have slashes */
        do
            slash--;
        while (slash > price->key && *slash != '/');
    snprintf(name, sizeof name, "%.*s", (int)(slash - price->key), price->key);
    if (sscanf(slash,
               "/%" SCNd64 "/%" SCNd64 "/%" SCNd64 "/%" SCNd64 "/%" SCNd64 "/%" SCNd64
               "/%127[^/]/%lf/%lf/%d/%15[^/]/%15[^/]/%15[^/]/%511[^/]",
               n, n + 1, n + 2, n + 3, n + 4, n + 5, layout, &guidance, &strength, &inputs,
               compute[0], compute[1], compute[2], method) != PARTS)
        return NULL;
    json_t *json = json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:f, s:f}", "model", name, "frames",
                             (json_int_t)n[0], "height", (json_int_t)n[1], "width",
                             (json_int_t)n[2], "steps", (json_int_t)n[3], "batch", (json_int_t)n[4],
                             "guidance_scale", guidance, "strength", strength);
    if (json && n[5] > 0)
        json_object_set_new(json, "ranks", json_integer(n[5]));
    if (json && strcmp(layout, "-") != 0)
        json_object_set_new(json, "layout", json_string(layout));
    for (int i = 0; json && i < WEFT_COMPUTE_FIELDS; i++)
        json_object_set_new(json, weft_compute_kinds[i].field, json_string(compute[i]));
    if (json)
        weft_method_parse(method, json);
    for (int i = 0; json && i < WEFT_INPUTS; i++)
        if (inputs & 1 << i)
            json_object_set_new(json, weft_input_kinds[i].key, json_string(WEFT_PRICE_IMAGE));
    return json;
}

bool weft_price_estimate_begin(weft_price_estimate *e, weft_server *s)
{
    weft_price *price = e->child.pid ? NULL : weft_prices_next(&s->prices);
    weft_child_arguments a = {0};
    if (!price)
        return false;
    json_t *request = request_of(price);
    const weft_served_model *m = weft_video_request_model(request, s->models, s->model_count);
    price->state = WEFT_PRICE_ASKED;
    memcpy(e->asked, price->key, sizeof e->asked);
    s->estimates++;
    if (m)
        weft_child_arguments_estimate(s, m, request, &a);
    const weft_child_start_options options = {
        .argv = a.at, .folder = s->state, .lock = -1, .with_output = true, .starter = &s->starter};
    if (!m || weft_child_start(&options, &e->child) != WEFT_OK) {
        weft_price_read(price, false, "", "");
        weft_http_server_wake(s);
    }
    json_decref(request);
    return e->child.pid != 0;
}

void weft_price_estimate_stop(weft_price_estimate *e)
{
    if (!e->child.pid)
        return;
    kill(e->child.pid, SIGKILL);
    (void)weft_child_wait(&e->child);
    weft_child_close(&e->child);
}
