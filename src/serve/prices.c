#include "serve/prices.h"

#include "base/config.h"
#include "serve/compute_fields.h"
#include "serve/input_files.h"
#include "serve/shown_text.h"

#include <stdio.h>
#include <string.h>

/* A batch has the layout of its jobs. The price of one video chooses the layout. */
static void make_key(const json_t *request, char key[WEFT_PRICE_KEY])
{
    static const char *const names[] = {"frames", "height", "width", "steps", "batch", "ranks"};
    const char *model = json_string_value(json_object_get(request, "model"));
    int length = snprintf(key, 160, "%.150s", model ? model : "");
    for (int i = 0; i < WEFT_COUNT(names); i++)
        length += snprintf(key + length, 32, "/%" PRId64,
                           (int64_t)json_integer_value(json_object_get(request, names[i])));
    const weft_compute c = weft_compute_of(request);
    const char *layout = json_string_value(json_object_get(request, "layout"));
    char method[WEFT_METHOD_TEXT];
    weft_method_text(request, method);
    const bool fixed = layout && json_integer_value(json_object_get(request, "batch")) > 1;
    snprintf(key + length, (size_t)(WEFT_PRICE_KEY - length), "/%s/%g/%g/%d/%s/%s/%s/%s",
             fixed ? layout : "-", json_number_value(json_object_get(request, "guidance_scale")),
             json_number_value(json_object_get(request, "strength")), weft_inputs_of(request),
             c.value[WEFT_COMPUTE_PRECISION], c.value[WEFT_COMPUTE_VAE_PRECISION],
             c.value[WEFT_COMPUTE_WEIGHTS], method);
}

/* The place of a further price: a free one, or the place of the price whose use is longest ago. */
static weft_price *take_place(weft_prices *p)
{
    weft_price *oldest = NULL;
    if (p->count < WEFT_PRICES)
        return &p->at[p->count++];
    for (int i = 0; i < p->count; i++)
        if (p->at[i].state >= WEFT_PRICE_KNOWN && (!oldest || p->at[i].used < oldest->used))
            oldest = &p->at[i];
    return oldest;
}

const weft_price *weft_prices_find(const weft_prices *p, const json_t *request)
{
    char key[WEFT_PRICE_KEY];
    make_key(request, key);
    for (int i = 0; i < p->count; i++)
        if (p->at[i].state == WEFT_PRICE_KNOWN && !strcmp(p->at[i].key, key))
            return &p->at[i];
    return NULL;
}

static weft_price *find_or_add(weft_prices *p, const json_t *request)
{
    char key[WEFT_PRICE_KEY];
    weft_price *found = NULL;
    make_key(request, key);
    for (int i = 0; i < p->count && !found; i++)
        if (!strcmp(p->at[i].key, key))
            found = &p->at[i];
    if (!found) {
        found = take_place(p);
        if (!found)
            return NULL;
        *found = (weft_price){.state = WEFT_PRICE_NEW};
        memcpy(found->key, key, sizeof key);
    }
    found->used = ++p->uses;
    return found;
}

/* Whether the refusal follows from the request, the files of the model and the memory limit. */
static bool is_lasting(const weft_price *price)
{
    const int status = weft_message_status(weft_message_find(price->code));
    return weft_message_find(price->code) == WEFT_MSG_MEMORY_NEEDED || status == WEFT_E_ARG ||
           status == WEFT_E_UNSUPPORTED || status == WEFT_E_CONFIG || status == WEFT_E_NOT_FOUND ||
           status == WEFT_E_FORMAT;
}

weft_price *weft_prices_ask(weft_prices *p, const json_t *request, uint64_t stamp, bool *asks)
{
    weft_price *price = find_or_add(p, request);
    if (!price)
        return NULL;
    if (price->state == WEFT_PRICE_REFUSED && !*asks &&
        (price->stamp != stamp || !is_lasting(price)))
        price->state = WEFT_PRICE_NEW;
    if (price->state == WEFT_PRICE_NEW)
        price->stamp = stamp;
    *asks = true;
    return price;
}

weft_price *weft_prices_next(weft_prices *p)
{
    for (int i = 0; i < p->count; i++)
        if (p->at[i].state == WEFT_PRICE_NEW)
            return &p->at[i];
    return NULL;
}

/* ---- answers -------------------------------------------------------------------------------- */

/* The field of requests that sets an option of `weft estimate` or `weft generate`. */
static void copy_field(const char *key, char field[32])
{
    if (!strcmp(key, "--image"))
        key = "input_reference";
    weft_shown_text_copy(field, 32, weft_shown_text_has_path(key) ? "" : key + strspn(key, "-"));
    for (char *at = field; *at; at++)
        if (*at == '-')
            *at = '_';
}

/* Texts with a path are replaced by the cause of the class: no response has a path. */
static void copy_error(const json_t *error, char code[64], char field[32], char text[512])
{
    const char *id = json_string_value(json_object_get(error, "id")),
               *key = json_string_value(json_object_get(error, "key")),
               *message = json_string_value(json_object_get(error, "message"));
    const bool hidden =
        !message || json_object_get(error, "file") || weft_shown_text_has_path(message);
    weft_shown_text_copy(code, 64, id ? id : "");
    copy_field(key ? key : "", field);
    weft_shown_text_copy(text, 512,
                         hidden ? weft_message_cause(weft_message_find(id ? id : "")) : message);
}

/* A rank that ends because of another rank does not have the cause. */
static bool reports_other_rank(const json_t *error)
{
    const char *id = json_string_value(json_object_get(error, "id"));
    return id && weft_message_status(weft_message_find(id)) == WEFT_E_COMM;
}

bool weft_last_error(const char *messages, char code[64], char field[32], char text[512])
{
    bool found = false;
    for (const char *line = messages, *end; line && *line; line = end ? end + 1 : NULL) {
        end = strchr(line, '\n');
        json_t *json = json_loadb(line, end ? (size_t)(end - line) : strlen(line), 0, NULL);
        const char *level = json_string_value(json_object_get(json, "level"));
        if (level && !strcmp(level, "error") && !reports_other_rank(json)) {
            copy_error(json, code, field, text);
            found = true;
        }
        json_decref(json);
    }
    return found;
}

/* A name that is longer than any layout names none. */
static void copy_layout(const json_t *name, char layout[WEFT_JOB_LAYOUT])
{
    const char *text = json_string_value(name);
    snprintf(layout, WEFT_JOB_LAYOUT, "%s", text && strlen(text) < WEFT_JOB_LAYOUT ? text : "");
}

void weft_price_read(weft_price *price, bool succeeded, const char *output, const char *messages)
{
    json_t *json = succeeded ? json_loads(output, 0, NULL) : NULL;
    const json_t *seconds = json_object_get(json, "video_seconds"),
                 *bytes = json_object_get(json, "peak_bytes");
    price->state = WEFT_PRICE_REFUSED;
    if (json_is_number(seconds) && json_is_integer(bytes)) {
        price->state = WEFT_PRICE_KNOWN;
        price->seconds = json_number_value(seconds);
        price->decode = json_number_value(json_object_get(json, "decode_seconds"));
        price->bytes = json_integer_value(bytes);
        copy_layout(json_object_get(json, "layout"), price->layout);
    } else if (!weft_last_error(messages, price->code, price->field, price->text)) {
        snprintf(price->code, sizeof price->code, "%s", weft_message_id(WEFT_MSG_WORKER_FAILED));
        snprintf(price->text, sizeof price->text, "the request could not be estimated");
    }
    json_decref(json);
}
