#include "serve/job_price.h"

#include "serve/video_request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The price of a request on `ranks` (0: all). A copy: the next call may move prices. */
static weft_price ask(weft_serve_request *r, const json_t *video, int64_t ranks, bool *asks)
{
    weft_server *s = r->server;
    const weft_served_model *m = weft_video_request_model(video, s->models, s->model_count);
    json_t *on = json_copy((json_t *)(uintptr_t)video);
    if (on && ranks)
        json_object_set_new(on, "ranks", json_integer(ranks));
    const weft_price *found =
        on ? weft_prices_ask(&s->prices, on, weft_served_model_stamp(m), asks) : NULL;
    const weft_price price = found ? *found : (weft_price){.state = WEFT_PRICE_NEW};
    json_decref(on);
    return price;
}

static void take(const weft_price *from, weft_job_price *price)
{
    price->seconds = from->seconds;
    price->bytes = from->bytes;
    memcpy(price->layout, from->layout, sizeof price->layout);
}

/* An answer to a price that is not known. */
static weft_serve_reply answer(weft_serve_request *r, const weft_price *price)
{
    if (price->state == WEFT_PRICE_REFUSED)
        return weft_serve_error(400, price->code, price->field, price->text);
    weft_server_wake(r->server);
    return (weft_serve_reply){.waits = true};
}

static bool find_one(weft_serve_request *r, const json_t *video, weft_job_price *price,
                     weft_serve_reply *reply)
{
    const weft_price one = ask(r, video, 0, &r->asks_price);
    if (one.state != WEFT_PRICE_KNOWN) {
        *reply = answer(r, &one);
        return false;
    }
    take(&one, price);
    return true;
}

static void add_degree(json_t *list, int64_t ranks, const weft_price *price)
{
    json_array_append_new(list,
                          json_pack("{s:I, s:f, s:f, s:I, s:s}", "ranks", (json_int_t)ranks,
                                    "seconds", price->seconds, "decode_seconds", price->decode,
                                    "bytes", (json_int_t)price->bytes, "layout", price->layout));
}

/* Asks for every number of ranks at once. If none fits, the refusal is the one of a single rank,
 * which names the bytes or the value to change. */
static bool find_degrees(weft_serve_request *r, const json_t *video, weft_job_price *price,
                         weft_serve_reply *reply)
{
    const int64_t all = r->server->options->ranks;
    const bool asked = r->asks_price;
    weft_price refused = {.state = WEFT_PRICE_NEW};
    bool waits = false;
    json_t *list = json_array();
    for (int64_t ranks = 1; ranks <= all; ranks *= 2) {
        bool asks = asked;
        const weft_price one = ask(r, video, ranks, &asks);
        waits = waits || one.state < WEFT_PRICE_KNOWN;
        if (one.state == WEFT_PRICE_REFUSED && ranks == 1)
            refused = one;
        if (one.state != WEFT_PRICE_KNOWN)
            continue;
        if (json_array_size(list) == 0 || one.seconds < price->seconds)
            take(&one, price);
        add_degree(list, ranks, &one);
    }
    r->asks_price = true;
    if (!waits && json_array_size(list) > 0) {
        price->degrees = list;
        return true;
    }
    *reply = answer(r, waits ? &(weft_price){.state = WEFT_PRICE_NEW} : &refused);
    json_decref(list);
    return false;
}

bool weft_job_price_find(weft_serve_request *r, const json_t *video, weft_job_price *price,
                         weft_serve_reply *reply)
{
    return r->server->shares ? find_degrees(r, video, price, reply)
                             : find_one(r, video, price, reply);
}

weft_status weft_job_price_size(const weft_server *s, const weft_job_price *price,
                                const json_t *video, weft_elastic_size *size)
{
    *size = (weft_elastic_size){0};
    if (!price->degrees)
        return WEFT_OK;
    json_t *with = json_copy((json_t *)(uintptr_t)video);
    if (with)
        json_object_set(with, "degrees", price->degrees);
    char *text = with ? json_dumps(with, JSON_COMPACT) : NULL;
    weft_queue_job job = {.request = text, .seconds = price->seconds};
    const weft_status_code status = WEFT_ALLOCATED(text, "a price");
    if (text)
        weft_share_size(&job, true, &s->learned.ranks, s->options->ranks, size);
    free(text);
    json_decref(with);
    return status;
}
