/* The operators of a config, checked and ready to judge shots by recorded scores. */
#ifndef WEFT_CURATE_OPERATORS_OPERATOR_SET_H
#define WEFT_CURATE_OPERATORS_OPERATOR_SET_H

#include "base/json.h"
#include "curate/operators/operator_order.h"
#include "curate/operators/operators_config.h"
#include "curate/operators/score_expression.h"

/* Facts of a shot that every record has. */
typedef enum weft_fact {
    WEFT_FACT_MOTION,
    WEFT_FACT_SHARPNESS,
    WEFT_FACT_BRIGHTNESS,
    WEFT_FACT_FRAMES,
    WEFT_FACT_SECONDS,
    WEFT_FACT_FPS,
    WEFT_FACT_WIDTH,
    WEFT_FACT_HEIGHT,
    WEFT_FACTS,
} weft_fact;

typedef enum weft_operator_kind {
    WEFT_OPERATOR_EXPRESSION,
    WEFT_OPERATOR_MEASURE,
    WEFT_OPERATOR_PROCESS,
    WEFT_OPERATOR_ONNX,
    WEFT_OPERATOR_AESTHETICS,
    WEFT_OPERATOR_TEXT,
} weft_operator_kind;

typedef struct weft_operator {
    const weft_operator_config *config; /* borrowed */
    weft_operator_kind kind;
    weft_expression *expression; /* owned; EXPRESSION only */
    uint32_t after;              /* bits of the operators that must come before */
    char definition[24];         /* changes when scores of the operator change */
} weft_operator;

typedef struct weft_operator_set {
    weft_operator op[WEFT_MOST_OPERATORS];
    int count;
    int order[WEFT_MOST_OPERATORS]; /* of the config, until it is set */
    const char *names[WEFT_FACTS + WEFT_MOST_OPERATORS];
} weft_operator_set;

/* Checks `list` (weft_operator_config, borrowed). WEFT_E_CONFIG names the key of the list. */
weft_status weft_operator_set_open(const weft_section_list *list, weft_operator_set **set);
void weft_operator_set_close(weft_operator_set *set); /* accepts NULL */

/* Reads the facts of a shot's record. */
void weft_shot_facts(const json_t *shot, double facts[WEFT_FACTS]);

/* The area of a shot [x, y, width, height] without the bands of text that its scores contain
 * ("NAME.rows" of operators with `crop`); new reference. NULL: nothing is cropped. */
json_t *weft_operator_set_crop(const weft_operator_set *set, const json_t *shot,
                               const json_t *scores);

/* How the operators judge a shot. */
typedef struct weft_shot_decision {
    int reached; /* operators of the order that saw the shot */
    int by;      /* operator that rejects it; -1: none */
    int missing; /* without a rejection: first operator of the order without a score; -1: none */
    bool failed; /* the operator gave no score */
    double value, limit;
    char reason[400];
} weft_shot_decision;

/* `scores` is the record of a shot: a number per operator, or {"failed": reason}; NULL: none. A
 * shot is rejected by the first operator of the order that rejects it, if any. Whether one does
 * depends on the scores only, not on the order. */
void weft_operator_set_decide(const weft_operator_set *set, const double facts[WEFT_FACTS],
                              const json_t *scores, weft_shot_decision *out);
/* Bits of the operators that reject the shot, each judged alone. *judged: bits of the operators
 * that have a verdict. */
uint32_t weft_operator_set_rejections(const weft_operator_set *set, const double facts[WEFT_FACTS],
                                      const json_t *scores, uint32_t *judged);
/* Scores of a shot as in its metadata; new reference. NULL: none. */
json_t *weft_operator_set_scores(const weft_operator_set *set, const double facts[WEFT_FACTS],
                                 const json_t *scores);

#endif
