/* The keys of one operator of a curation. */
#ifndef WEFT_CURATE_OPERATORS_OPERATORS_CONFIG_H
#define WEFT_CURATE_OPERATORS_OPERATORS_CONFIG_H

#include "base/config.h"

/* Limits of shots whose shorter side has at least `min_side` pixels. */
typedef struct weft_operator_tier {
    int64_t min_side;
    double min, max;
} weft_operator_tier;

typedef enum weft_operator_measure {
    WEFT_MEASURE_NONE,
    WEFT_MEASURE_BLUR,
    WEFT_MEASURE_EXPOSURE,
    WEFT_MEASURE_BLOCKINESS,
    WEFT_MEASURE_NOISE,
    WEFT_MEASURE_DIFFERENCE,
} weft_operator_measure;

/* An operator has exactly one of expression, measure, process, onnx, aesthetics and
 * text. */
typedef struct weft_operator_config {
    const char *name;
    const char *expression, *onnx, *aesthetics, *text; /* "": none */
    double crop;     /* largest band at the top and bottom that `text` cuts off, of the height */
    bool after_crop; /* the operator sees frames without the bands of earlier operators */
    int measure;     /* weft_operator_measure */
    weft_string_list process; /* program and arguments; empty: none */
    int64_t frames, side;
    double min, max; /* WEFT_OPERATOR_NO_MIN, WEFT_OPERATOR_NO_MAX: no limit */
    double timeout_seconds;
    bool keep_failed;
    weft_section_list tiers; /* weft_operator_tier */
    weft_f64_list mean, std;
    int64_t output;
} weft_operator_config;

#define WEFT_OPERATOR_NO_MIN (-1e300)
#define WEFT_OPERATOR_NO_MAX 1e300

extern const weft_section weft_operator_section;

#endif
