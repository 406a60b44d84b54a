#include "curate/operators/operator_set.h"
#include "curate/operators/technical_quality.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NO_LIMITS .min = WEFT_OPERATOR_NO_MIN, .max = WEFT_OPERATOR_NO_MAX
static const char *program[] = {"bash"};
static const weft_string_list bash = {.count = 1, .item = program};

static const double facts[WEFT_FACTS] = {0.5, 20, 100, 48, 2, 24, 640, 360};

static weft_operator_set *open_set(const weft_operator_config *c, int64_t count)
{
    weft_operator_set *set = NULL;
    const weft_section_list list = {count, (void *)c};
    cr_assert_eq(weft_operator_set_open(&list, &set), WEFT_OK, "%s", weft_error_message());
    return set;
}

/* Whether a shot is accepted does not depend on the order; the named operator is the first one. */
Test(operator_set, the_decision_does_not_depend_on_the_order)
{
    const weft_operator_config c[] = {
        {.name = "a",
         .process = bash,
         .expression = "",
         .onnx = "",
         .aesthetics = "",
         .text = "",
         .min = 1,
         .max = 5},
        {.name = "b",
         .process = bash,
         .expression = "",
         .onnx = "",
         .aesthetics = "",
         .text = "",
         .min = 1,
         .max = 5},
        {.name = "sum", .expression = "a + b", .onnx = "", .aesthetics = "", .text = "", NO_LIMITS},
        {.name = "low",
         .expression = "sum < 8 and motion > 0.1",
         .onnx = "",
         .aesthetics = "",
         .text = "",
         NO_LIMITS}};
    static const int orders[][4] = {{0, 1, 2, 3}, {1, 0, 2, 3}};
    weft_operator_set *set = open_set(c, 4);
    cr_assert_eq(set->op[3].after, 4u);
    for (int a = 0; a < 7; a++)
        for (int b = 0; b < 7; b++) {
            int by[2];
            json_t *scores = json_pack("{s:i,s:i}", "a", a, "b", b);
            for (int k = 0; k < 2; k++) {
                weft_shot_decision d;
                memcpy(set->order, orders[k], sizeof orders[k]);
                weft_operator_set_decide(set, facts, scores, &d);
                cr_assert_eq(d.missing, -1);
                by[k] = d.by;
            }
            const bool accepted = a >= 1 && a <= 5 && b >= 1 && b <= 5 && a + b < 8;
            cr_assert_eq(by[0] < 0, accepted, "%d %d", a, b);
            cr_assert_eq(by[1] < 0, accepted, "%d %d", a, b);
            json_decref(scores);
        }
    weft_operator_set_close(set);
}

/* Missing scores are requested until one rejects; failed ones reject or are kept. */
Test(operator_set, missing_and_failed_scores)
{
    weft_operator_config c[] = {{.name = "a",
                                 .process = bash,
                                 .expression = "",
                                 .onnx = "",
                                 .aesthetics = "",
                                 .text = "",
                                 .min = 1,
                                 .max = 5},
                                {.name = "b",
                                 .process = bash,
                                 .expression = "",
                                 .onnx = "",
                                 .aesthetics = "",
                                 .text = "",
                                 .min = 1,
                                 .max = 5},
                                {.name = "both",
                                 .expression = "a + b > 4",
                                 .onnx = "",
                                 .aesthetics = "",
                                 .text = "",
                                 NO_LIMITS}};
    weft_shot_decision d;
    weft_operator_set *set = open_set(c, 3);
    weft_operator_set_decide(set, facts, NULL, &d);
    cr_assert(d.by == -1 && d.missing == 0);
    json_t *scores = json_pack("{s:i}", "a", 2);
    weft_operator_set_decide(set, facts, scores, &d);
    cr_assert(d.by == -1 && d.missing == 1);
    json_object_set_new(scores, "a", json_integer(9));
    weft_operator_set_decide(set, facts, scores, &d);
    cr_assert(d.by == 0 && d.value == 9 && d.limit == 5);
    json_object_set_new(scores, "a", json_integer(2));
    json_object_set_new(scores, "b", json_pack("{s:s}", "failed", "no light"));
    weft_operator_set_decide(set, facts, scores, &d);
    cr_assert(d.by == 1 && d.failed && strstr(d.reason, "no light"), "%s", d.reason);
    c[1].keep_failed = true;
    weft_operator_set_decide(set, facts, scores, &d);
    cr_assert(d.by == 2 && d.failed, "%d", d.by); /* the expression has no value */
    c[2].keep_failed = true;
    weft_operator_set_decide(set, facts, scores, &d);
    cr_assert_eq(d.by, -1);
    json_decref(scores);
    weft_operator_set_close(set);
}

Test(operator_set, tiers_replace_limits)
{
    weft_operator_tier tiers[] = {{720, 5, WEFT_OPERATOR_NO_MAX}, {300, 3, 4}};
    const weft_operator_config c[] = {{.name = "a",
                                       .process = bash,
                                       .expression = "",
                                       .onnx = "",
                                       .aesthetics = "",
                                       .text = "",
                                       .min = 1,
                                       .max = 9,
                                       .tiers = {2, tiers}}};
    static const struct {
        double side, value;
        bool accepted;
    } cases[] = {{200, 1, true},  {200, 0.9, false}, {299, 9, true},
                 {300, 2, false}, {300, 3, true},    {719, 5, false},
                 {720, 5, true},  {2000, 4, false},  {720, 99, true}};
    weft_operator_set *set = open_set(c, 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double f[WEFT_FACTS];
        weft_shot_decision d;
        memcpy(f, facts, sizeof f);
        f[WEFT_FACT_HEIGHT] = cases[i].side;
        f[WEFT_FACT_WIDTH] = 5000;
        json_t *scores = json_pack("{s:f}", "a", cases[i].value);
        weft_operator_set_decide(set, f, scores, &d);
        cr_assert_eq(d.by < 0, cases[i].accepted, "%g of side %g", cases[i].value, cases[i].side);
        json_decref(scores);
    }
    weft_operator_set_close(set);
}

Test(operator_set, faults_of_the_config_name_the_key)
{
    static const struct {
        weft_operator_config c[2];
        int64_t count;
        const char *key;
        weft_message_class kind;
    } cases[] = {
        {{{.name = "1a",
           .expression = "1 > 0",
           .onnx = "",
           .aesthetics = "",
           .text = "",
           NO_LIMITS}},
         1,
         "operators.0.name",
         WEFT_MSG_CONFIG_VALUE},
        {{{.name = "motion",
           .expression = "1 > 0",
           .onnx = "",
           .aesthetics = "",
           .text = "",
           NO_LIMITS}},
         1,
         "operators.0.name",
         WEFT_MSG_CONFIG_VALUE},
        {{{.name = "and",
           .expression = "1 > 0",
           .onnx = "",
           .aesthetics = "",
           .text = "",
           NO_LIMITS}},
         1,
         "operators.0.name",
         WEFT_MSG_CONFIG_VALUE},
        {{{.name = "a", .expression = "", .onnx = "", .aesthetics = "", .text = "", NO_LIMITS}},
         1,
         "operators.0.name",
         WEFT_MSG_CONFIG_CONFLICT},
        {{{.name = "a",
           .expression = "1 > 0",
           .measure = WEFT_MEASURE_BLUR,
           .onnx = "",
           .aesthetics = "",
           .text = "",
           NO_LIMITS}},
         1,
         "operators.0.name",
         WEFT_MSG_CONFIG_CONFLICT},
        {{{.name = "a",
           .expression = "b > 0",
           .onnx = "",
           .aesthetics = "",
           .text = "",
           NO_LIMITS}},
         1,
         "operators.0.expression",
         WEFT_MSG_CONFIG_VALUE},
        {{{.name = "a",
           .expression = "1 > 0",
           .onnx = "",
           .aesthetics = "",
           .text = "",
           .min = 1,
           .max = 2}},
         1,
         "operators.0.expression",
         WEFT_MSG_CONFIG_CONFLICT},
        {{{.name = "a", .expression = "1 > 0", .onnx = "", .aesthetics = "", .text = "", NO_LIMITS},
          {.name = "a",
           .expression = "1 > 0",
           .onnx = "",
           .aesthetics = "",
           .text = "",
           NO_LIMITS}},
         2,
         "operators.1.name",
         WEFT_MSG_CONFIG_VALUE},
        {{{.name = "a",
           .expression = "",
           .measure = WEFT_MEASURE_BLUR,
           .onnx = "",
           .aesthetics = "",
           .text = "",
           .min = 2,
           .max = 1}},
         1,
         "operators.0.min",
         WEFT_MSG_CONFIG_CONFLICT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weft_operator_set *set = NULL;
        const weft_section_list list = {cases[i].count, (void *)cases[i].c};
        cr_assert_eq(weft_operator_set_open(&list, &set), WEFT_E_CONFIG, "case %zu", i);
        cr_assert_eq(weft_error_class(), cases[i].kind, "case %zu: %s", i, weft_error_message());
        cr_assert_str_eq(weft_error_fields()->key, cases[i].key, "case %zu", i);
    }
}

/* ---- technical quality --------------------------------------------------------------------- */

enum { W = 160, H = 96 };
static uint8_t plane[W * H], changed[W * H];
static uint32_t state = 3;
static int next_random(int below)
{
    state = state * 1664525 + 1013904223;
    return (int)((state >> 8) % (uint32_t)below);
}

/* Bright squares on a gray ground, at odd places. */
static void draw(void)
{
    memset(plane, 90, sizeof plane);
    for (int y = 13; y < 80; y++)
        for (int x = 13; x < 150; x++)
            if ((x / 31 + y / 29) % 2)
                plane[y * W + x] = 190;
}

static double of(weft_operator_measure measure, const uint8_t *from)
{
    return weft_technical_measure(measure, from, W, H);
}

/* Operators with `after_crop` follow the one that crops. Its changes define their scores, too. */
Test(operator_set, operators_see_cropped_frames)
{
    weft_operator_config c[] = {{.name = "letters",
                                 .text = "/dev/null",
                                 .crop = 0.2,
                                 .expression = "",
                                 .onnx = "",
                                 .aesthetics = "",
                                 NO_LIMITS},
                                {.name = "rest",
                                 .measure = WEFT_MEASURE_DIFFERENCE,
                                 .after_crop = true,
                                 .expression = "",
                                 .onnx = "",
                                 .aesthetics = "",
                                 .text = "",
                                 NO_LIMITS}};
    weft_operator_set *set = open_set(c, 2);
    char before[2][24];
    cr_expect_eq(set->op[1].after, 1u);
    for (int i = 0; i < 2; i++)
        snprintf(before[i], sizeof before[i], "%s", set->op[i].definition);
    json_t *shot = json_pack("{s:[i,i,i,i]}", "picture", 0, 40, 640, 280),
           *scores = json_pack("{s:f,s:[f,f]}", "letters", 0.0, "letters.rows", 0.05, 0.799),
           *none = json_pack("{s:f,s:[f,f]}", "letters", 0.0, "letters.rows", 0.0, 1.0),
           *area = weft_operator_set_crop(set, shot, scores),
           *wanted = json_pack("[i,i,i,i]", 0, 54, 640, 209);
    cr_expect(json_equal(area, wanted), "%s", json_dumps(area, 0));
    cr_expect_null(weft_operator_set_crop(set, shot, none));
    cr_expect_null(weft_operator_set_crop(set, shot, NULL));
    weft_operator_set_close(set);
    c[0].crop = 0.3;
    set = open_set(c, 2);
    for (int i = 0; i < 2; i++)
        cr_expect_str_neq(before[i], set->op[i].definition);
    weft_operator_set_close(set);
    c[0].crop = 0;
    const weft_section_list list = {2, c};
    cr_expect_eq(weft_operator_set_open(&list, &set), WEFT_E_CONFIG);
    cr_expect(strstr(weft_error_message(), "rest"), "%s", weft_error_message());
    c[1].crop = 0.1;
    c[1].after_crop = false;
    cr_expect_eq(weft_operator_set_open(&list, &set), WEFT_E_CONFIG);
    json_decref(shot);
    json_decref(scores);
    json_decref(none);
    json_decref(area);
    json_decref(wanted);
}

Test(technical_quality, difference_is_of_successive_frames)
{
    uint8_t rgb[3][4][3];
    double score = -1;
    for (int f = 0; f < 3; f++)
        for (int i = 0; i < 4; i++)
            memset(rgb[f][i], f == 1 && i == 0 ? 140 : 100, 3);
    cr_assert_eq(weft_technical_quality(WEFT_MEASURE_DIFFERENCE, rgb[0][0], 3, 2, 2, &score),
                 WEFT_OK);
    cr_expect_float_eq(score, 10, 1e-12);
    cr_assert_eq(weft_technical_quality(WEFT_MEASURE_DIFFERENCE, rgb[0][0], 1, 2, 2, &score),
                 WEFT_OK);
    cr_expect_eq(score, 0);
}

Test(technical_quality, blur_is_the_width_of_edges)
{
    draw();
    const double sharp = of(WEFT_MEASURE_BLUR, plane);
    for (int radius = 2; radius <= 6; radius += 2) {
        const double before = radius == 2 ? sharp : of(WEFT_MEASURE_BLUR, changed);
        for (int y = 0; y < H; y++)
            for (int x = 0; x < W; x++) {
                int sum = 0;
                for (int d = -radius; d <= radius; d++) {
                    const int at = x + d < 0 ? 0 : x + d >= W ? W - 1 : x + d;
                    sum += plane[y * W + at];
                }
                changed[y * W + x] = (uint8_t)(sum / (2 * radius + 1));
            }
        cr_assert_geq(of(WEFT_MEASURE_BLUR, changed), before + 1, "radius %d", radius);
    }
    cr_assert_leq(sharp, 2);
    memset(changed, 100, sizeof changed);
    cr_assert_eq(of(WEFT_MEASURE_BLUR, changed), 64);
}

Test(technical_quality, exposure_counts_clipped_pixels)
{
    draw();
    cr_assert_eq(of(WEFT_MEASURE_EXPOSURE, plane), 0);
    memset(plane, 255, W * H / 4);
    memset(plane + W * H / 4, 3, W * H / 4);
    cr_assert_float_eq(of(WEFT_MEASURE_EXPOSURE, plane), 0.5, 1e-9);
}

/* Noise of a known deviation is found next to strong edges. */
Test(technical_quality, noise_is_a_standard_deviation)
{
    draw();
    cr_assert_lt(of(WEFT_MEASURE_NOISE, plane), 0.01);
    for (int i = 0; i < W * H; i++) { /* a sum of 12 uniform numbers: deviation 4 */
        double sum = 0;
        for (int k = 0; k < 12; k++)
            sum += next_random(1000) / 1000.0 - 0.5;
        changed[i] = (uint8_t)lround(plane[i] + 4 * sum);
    }
    const double noise = of(WEFT_MEASURE_NOISE, changed);
    cr_assert(noise > 3 && noise < 4.5, "%g", noise);
}

/* A gradient whose blocks have one level each, at any phase. */
Test(technical_quality, blocks_are_found_at_any_phase)
{
    for (int phase = 0; phase < 8; phase += 3) {
        for (int y = 0; y < H; y++)
            for (int x = 0; x < W; x++) {
                const int bx = (x + phase) / 8, by = (y + 2 * phase) / 8;
                plane[y * W + x] = (uint8_t)(60 + (x + y) / 4 + next_random(3));
                changed[y * W + x] =
                    (uint8_t)(60 + 6 * (bx + by) / 4 + (bx * 7 + by * 5) % 11 + next_random(3));
            }
        cr_assert_lt(of(WEFT_MEASURE_BLOCKINESS, plane), 0.2);
        cr_assert_gt(of(WEFT_MEASURE_BLOCKINESS, changed), 1);
    }
}
