#include "curate/curate_page.h"

#include "base/fs.h"
#include "base/memory.h"
#include "curate/operators/shot_scorer.h"
#include "curate/reject_examples.h"
#include "draw/html.h"

#include <math.h>
#include <stdio.h>

enum { BINS = 40, WIDTH = 520, HEIGHT = 180, MARGIN = 24 };

/* Values of one score: of accepted and of rejected shots. */
typedef struct histogram {
    const char *name;
    double min, max; /* limits; not finite: none */
    double low, high;
    int64_t count[2][BINS], shots; /* [0]: accepted */
} histogram;

/* Value `score` of a shot: a fact, or of operator score - WEFT_FACTS. NaN: none. */
static double value_of(const weft_curate_source *s, const json_t *shot, int score, const char *name)
{
    double facts[WEFT_FACTS];
    weft_shot_facts(shot, facts);
    if (score < WEFT_FACTS)
        return facts[score];
    const json_t *number = json_object_get(weft_shot_scores_of(s->scores, shot), name);
    return json_is_number(number) ? json_number_value(number) : NAN;
}

/* Calls `visit` for the value of each shot. */
static void visit_shots(const weft_curate_plan *p, int score, histogram *h,
                        void (*visit)(histogram *h, double value, bool rejected))
{
    for (int64_t i = 0; i < p->sources; i++) {
        const weft_curate_source *s = &p->source[i];
        size_t k;
        json_t *shot;
        json_array_foreach(json_object_get(s->record, "shots"), k, shot)
        {
            const double value =
                json_object_get(shot, "gap") ? NAN : value_of(s, shot, score, h->name);
            if (isfinite(value))
                visit(h, value, json_object_get(shot, "reject") != NULL);
        }
    }
}

static void widen(histogram *h, double value, bool rejected)
{
    (void)rejected;
    h->low = h->shots ? fmin(h->low, value) : value;
    h->high = h->shots ? fmax(h->high, value) : value;
    h->shots++;
}

static void count(histogram *h, double value, bool rejected)
{
    const int bin = h->high > h->low ? (int)(BINS * (value - h->low) / (h->high - h->low)) : 0;
    h->count[rejected][bin < BINS ? bin : BINS - 1]++;
}

static void draw_limit(weft_svg *svg, const histogram *h, double limit)
{
    const double x = MARGIN + (WIDTH - 2 * MARGIN) * (limit - h->low) / (h->high - h->low);
    if (isfinite(limit) && limit >= h->low && limit <= h->high && h->high > h->low)
        weft_svg_line(svg, x, MARGIN, x, HEIGHT - MARGIN, weft_svg_colour(1), 2, 1);
}

static weft_status draw(const histogram *h, weft_buf *page)
{
    weft_svg svg = {0};
    char label[96];
    int64_t most = 1;
    for (int b = 0; b < BINS; b++)
        most = h->count[0][b] + h->count[1][b] > most ? h->count[0][b] + h->count[1][b] : most;
    weft_svg_begin(&svg, WIDTH, HEIGHT);
    for (int b = 0; b < BINS; b++) {
        const double w = (WIDTH - 2.0 * MARGIN) / BINS, room = HEIGHT - 2.0 * MARGIN,
                     kept = room * (double)h->count[0][b] / (double)most,
                     lost = room * (double)h->count[1][b] / (double)most;
        weft_svg_rect(&svg, MARGIN + b * w, HEIGHT - MARGIN - kept, w - 1, kept, weft_svg_colour(0),
                      1, NULL);
        weft_svg_rect(&svg, MARGIN + b * w, HEIGHT - MARGIN - kept - lost, w - 1, lost, "#888888",
                      0.6, NULL);
    }
    draw_limit(&svg, h, h->min);
    draw_limit(&svg, h, h->max);
    snprintf(label, sizeof label, "%s (%lld shots)", h->name, (long long)h->shots);
    weft_svg_label(&svg, MARGIN, 16, 13, 's', 0, label);
    snprintf(label, sizeof label, "%.4g", h->low);
    weft_svg_label(&svg, MARGIN, HEIGHT - 6, 11, 's', 0, label);
    snprintf(label, sizeof label, "%.4g", h->high);
    weft_svg_label(&svg, WIDTH - MARGIN, HEIGHT - 6, 11, 'e', 0, label);
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_svg_end(&svg));
    weft_html_svg(page, &svg.text);
out:
    weft_buf_free(&svg.text);
    return status;
}

static weft_status add_histogram(const weft_curate_plan *p, int score, histogram h, weft_buf *page)
{
    visit_shots(p, score, &h, widen);
    visit_shots(p, score, &h, count);
    return h.shots > 0 ? draw(&h, page) : WEFT_OK;
}

static weft_status add_histograms(const weft_curate_plan *p, weft_buf *page)
{
    const weft_curate_quality *q = &p->config->quality;
    const struct {
        weft_fact fact;
        histogram h;
    } facts[] = {
        {WEFT_FACT_MOTION, {.name = "motion", .min = q->min_motion, .max = q->max_motion}},
        {WEFT_FACT_SHARPNESS, {.name = "sharpness", .min = q->min_sharpness, .max = INFINITY}},
        {WEFT_FACT_BRIGHTNESS,
         {.name = "brightness", .min = q->min_brightness, .max = q->max_brightness}},
        {WEFT_FACT_SECONDS,
         {.name = "seconds", .min = p->config->clips.min_seconds, .max = INFINITY}},
    };
    weft_html_heading(page, "Scores of shots: accepted (blue), rejected (grey), limits (orange)");
    for (int i = 0; i < WEFT_COUNT(facts); i++)
        WEFT_TRY(add_histogram(p, (int)facts[i].fact, facts[i].h, page));
    for (int i = 0; p->operators && i < p->operators->count; i++) {
        const weft_operator_config *c = p->operators->op[i].config;
        const histogram h = {.name = c->name, .min = c->min, .max = c->max};
        WEFT_TRY(add_histogram(p, WEFT_FACTS + i, h, page));
    }
    return WEFT_OK;
}

/* The clusters with the most shots. */
static void add_clusters(const json_t *clusters, weft_buf *page)
{
    enum { ROWS = 24, COLUMNS = 6 };
    static const char *const head[] = {"cluster",        "shots",    "similar",
                                       "over the limit", "accepted", "nearest to the centre"};
    static const char *const members[] = {"cluster", "shots", "similar", "over_limit", "accepted"};
    char text[ROWS][5][32];
    const char *cell[ROWS * COLUMNS];
    bool used[ROWS] = {false};
    const json_t *list = json_object_get(clusters, "clusters"), *row;
    size_t k, of[ROWS];
    int rows = 0;
    json_array_foreach(list, k, row) /* insertion of the largest ROWS */
    {
        int at = rows < ROWS ? rows++ : ROWS - 1;
        const int64_t shots = json_integer_value(json_object_get(row, "shots"));
        if (used[at] &&
            shots <= json_integer_value(json_object_get(json_array_get(list, of[at]), "shots")))
            continue;
        for (; at > 0 && shots > json_integer_value(
                                     json_object_get(json_array_get(list, of[at - 1]), "shots"));
             at--)
            of[at] = of[at - 1];
        of[at] = k;
        used[rows - 1] = true;
    }
    for (int i = 0; i < rows; i++) {
        const json_t *from = json_array_get(list, of[i]);
        const char *source = json_string_value(json_object_get(from, "source"));
        for (int m = 0; m < 5; m++) {
            snprintf(text[i][m], sizeof text[i][m], "%lld",
                     json_integer_value(json_object_get(from, members[m])));
            cell[COLUMNS * i + m] = text[i][m];
        }
        cell[COLUMNS * i + 5] = source ? source : "-";
    }
    if (rows > 0) {
        weft_html_heading(page, "Clusters, largest first");
        weft_html_table(page, head, cell, rows, COLUMNS);
    }
}

static void add_operators(const json_t *table, weft_buf *page)
{
    static const char *const head[] = {"operator", "input", "output", "failed", "seconds", "price"};
    static const char *const members[] = {"input", "output", "failed", "seconds", "price"};
    char text[WEFT_MOST_OPERATORS][5][32];
    const char *cell[WEFT_MOST_OPERATORS * 6];
    int rows = 0;
    const json_t *list = json_object_get(table, "operators");
    for (; rows < (int)json_array_size(list) && rows < WEFT_MOST_OPERATORS; rows++) {
        const json_t *row = json_array_get(list, (size_t)rows);
        cell[6 * rows] = json_string_value(json_object_get(row, "name"));
        for (int k = 0; k < 5; k++) {
            const json_t *number = json_object_get(row, members[k]);
            if (json_is_number(number))
                snprintf(text[rows][k], sizeof text[rows][k], "%.4g", json_number_value(number));
            else
                snprintf(text[rows][k], sizeof text[rows][k], "-");
            cell[6 * rows + k + 1] = text[rows][k];
        }
    }
    if (rows > 0) {
        weft_html_heading(page, "Operators, in their order");
        weft_html_table(page, head, cell, rows, 6);
    }
}

weft_status weft_curate_page_write(const weft_curate_plan *p, const weft_curate_report *r,
                                   const char *path)
{
    weft_buf page = {0};
    weft_status_code status = WEFT_OK;
    weft_html_begin(&page, "Curation");
    weft_html_heading(&page, "Funnel");
    const int64_t counts[] = {r->videos, r->videos - r->videos_rejected, r->shots, r->clips};
    const char *funnel[] = {"videos", NULL, "videos accepted", NULL, "shots", NULL, "clips", NULL};
    char text[4][32];
    for (int i = 0; i < 4; i++) {
        snprintf(text[i], sizeof text[i], "%lld", (long long)counts[i]);
        funnel[2 * i + 1] = text[i];
    }
    weft_html_table(&page, NULL, funnel, 4, 2);
    weft_html_heading(&page, "Rejects by operator");
    const char *const rejects[] = {r->rejects[0] ? r->rejects : "none"};
    weft_html_table(&page, NULL, rejects, 1, 1);
    add_operators(r->operators, &page);
    add_clusters(p->clusters, &page);
    WEFT_GO(add_histograms(p, &page));
    WEFT_GO(weft_reject_examples_add(p, &page));
    weft_html_end(&page);
    WEFT_GO(weft_buf_check(&page));
    status = weft_file_write_atomic(path, page.data, page.len);
out:
    weft_buf_free(&page);
    return status;
}
