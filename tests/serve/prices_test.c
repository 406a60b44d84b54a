/* Prices: a known one stays, a refusal answers the requests that waited for it. */
#include "serve/prices.h"

#include <criterion/criterion.h>

#include <stdio.h>

#include <stdlib.h>

static weft_prices *prices;
static json_t *request;

static void set_up(void)
{
    prices = calloc(1, sizeof *prices);
    request = json_pack("{s:s, s:i}", "model", "m", "steps", 3);
    cr_assert(prices && request);
}

static void tear_down(void)
{
    json_decref(request);
    free(prices);
}

TestSuite(prices, .init = set_up, .fini = tear_down);

#define REFUSAL(id)                                                                                \
    "{\"level\": \"error\", \"id\": \"" id                                                         \
    "\", \"key\": \"--guidance-scale\", \"message\": \"x\"}\n"

/* Asks as a new request. */
static weft_price *ask(uint64_t stamp)
{
    bool asks = false;
    return weft_prices_ask(prices, request, stamp, &asks);
}

Test(prices, a_refusal_answers_those_that_waited)
{
    bool first = false, second = false;
    weft_price *price = weft_prices_ask(prices, request, 1, &first);
    cr_assert_eq(price->state, WEFT_PRICE_NEW);
    cr_assert(weft_prices_next(prices) == price);
    price->state = WEFT_PRICE_ASKED;
    cr_assert_eq(weft_prices_ask(prices, request, 1, &second)->state, WEFT_PRICE_ASKED);
    weft_price_read(price, false, "", REFUSAL("worker-failed"));
    cr_assert_eq(weft_prices_ask(prices, request, 1, &first)->state, WEFT_PRICE_REFUSED);
    cr_assert_eq(weft_prices_ask(prices, request, 2, &second)->state, WEFT_PRICE_REFUSED);
    cr_assert_str_eq(price->code, "worker-failed");
    cr_assert_str_eq(price->field, "guidance_scale");
    cr_assert_eq(ask(1)->state, WEFT_PRICE_NEW); /* the machine may have processes now */
    cr_assert(weft_prices_next(prices) == price);
}

Test(prices, a_refusal_lasts_until_the_model_changes)
{
    weft_price *price = ask(1);
    weft_price_read(price, false, "", REFUSAL("video-size"));
    for (int i = 0; i < 3; i++)
        cr_assert_eq(ask(1)->state, WEFT_PRICE_REFUSED);
    cr_assert(!weft_prices_next(prices));
    cr_assert_eq(ask(2)->state, WEFT_PRICE_NEW);
    weft_price_read(price, false, "", REFUSAL("video-size"));
    cr_assert_eq(ask(2)->state, WEFT_PRICE_REFUSED);
}

Test(prices, a_known_price_stays)
{
    bool first = false, later = false;
    weft_price *price = weft_prices_ask(prices, request, 1, &first);
    cr_assert(!weft_prices_find(prices, request));
    weft_price_read(price, true,
                    "{\"video_seconds\": 2.5, \"decode_seconds\": 0.5, \"peak_bytes\": 7}", "");
    cr_assert_eq(weft_prices_ask(prices, request, 1, &later)->state, WEFT_PRICE_KNOWN);
    cr_assert(price->seconds == 2.5 && price->decode == 0.5 && price->bytes == 7);
    cr_assert(weft_prices_find(prices, request) == price);
    cr_assert(!weft_prices_next(prices));
}

Test(prices, the_error_of_another_rank_is_not_the_cause)
{
    char code[64] = "", field[32] = "", text[512] = "";
    static const char cause[] =
        "{\"level\": \"error\", \"id\": \"memory-needed\", \"message\": \"m\"}\n",
                      follows[] =
                          "{\"level\": \"error\", \"id\": \"rank-failed\", \"message\": \"r\"}\n";
    char both[256];
    snprintf(both, sizeof both, "%s%s", cause, follows);
    cr_assert(!weft_last_error(follows, code, field, text));
    cr_assert(weft_last_error(both, code, field, text));
    cr_assert_str_eq(code, "memory-needed");
}
