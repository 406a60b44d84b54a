#include "curate/operators/shot_scorer.h"

#include "base/log.h"
#include "base/memory.h"
#include "curate/operators/aesthetics_head.h"
#include "curate/operators/onnx_scorer.h"
#include "curate/operators/process_scorer.h"
#include "curate/operators/shot_frames.h"
#include "curate/operators/technical_quality.h"
#include "curate/operators/text_scorer.h"

#include <stdio.h>
#include <string.h>

struct weft_shot_scorer {
    const weft_operator_set *set;
    weft_shot_scorer_options options;
    weft_process_scorer *process[WEFT_MOST_OPERATORS]; /* NULL: not started */
    weft_onnx_scorer *onnx[WEFT_MOST_OPERATORS];
    weft_aesthetics_head *head[WEFT_MOST_OPERATORS];
    weft_text_scorer *text[WEFT_MOST_OPERATORS];
    int64_t loads;
};

/* A video whose shots are scored. */
typedef struct scored_video {
    const char *path, *name;
    bool unreachable;          /* the file cannot be fetched; an error of the machine or a server */
    weft_shot_decoder *frames; /* NULL: not opened */
    json_t *scores;
} scored_video;

weft_status weft_shot_scorer_open(const weft_operator_set *set,
                                  const weft_shot_scorer_options *options,
                                  weft_shot_scorer **scorer)
{
    WEFT_TRY(WEFT_NEW(*scorer, 1, "the operators"));
    (*scorer)->set = set;
    (*scorer)->options = *options;
    return WEFT_OK;
}

void weft_shot_scorer_close(weft_shot_scorer *s)
{
    for (int i = 0; s && i < WEFT_MOST_OPERATORS; i++) {
        weft_process_scorer_close(s->process[i]);
        weft_onnx_scorer_close(s->onnx[i]);
        weft_aesthetics_head_close(s->head[i]);
        weft_text_scorer_close(s->text[i]);
    }
    weft_free(s);
}

void weft_shot_scorer_set_all(weft_shot_scorer *s, bool all)
{
    s->options.all = all;
}

int64_t weft_shot_scorer_loads(const weft_shot_scorer *s)
{
    return s->loads;
}

void weft_shot_scores_prepare(const weft_operator_set *set, bool failures, json_t *scores)
{
    json_t *operators = json_object_get(scores, "operators"),
           *shots = json_object_get(scores, "shots"), *shot, *score;
    json_t *kept = json_object();
    const char *start, *name;
    void *next;
    for (int i = 0; i < set->count; i++) {
        const weft_operator *op = &set->op[i];
        const char *was = json_string_value(json_object_get(operators, op->config->name));
        if (was && strcmp(was, op->definition) == 0)
            json_object_set_new(kept, op->config->name, json_true());
    }
    json_object_foreach(shots, start, shot)
    {
        json_object_foreach_safe(shot, next, name, score)
        {
            char of[32]; /* the operator: "NAME.boxes" is kept with NAME */
            snprintf(of, sizeof of, "%.*s", (int)strcspn(name, "."), name);
            if (!json_object_get(kept, of) || (failures && json_object_get(score, "failed")))
                json_object_del(shot, name);
        }
    }
    json_decref(kept);
    operators = json_object();
    for (int i = 0; i < set->count; i++)
        json_object_set_new(operators, set->op[i].config->name, json_string(set->op[i].definition));
    json_object_set_new(scores, "operators", operators);
    static const char *const members[] = {"shots", "seconds", "scored"};
    for (int i = 0; i < WEFT_COUNT(members); i++)
        if (!json_is_object(json_object_get(scores, members[i])))
            json_object_set_new(scores, members[i], json_object());
}

json_t *weft_shot_scores_of(json_t *scores, const json_t *shot)
{
    char start[64];
    json_t *shots = json_object_get(scores, "shots");
    const int n =
        snprintf(start, sizeof start, "%lld", json_integer_value(json_object_get(shot, "start")));
    if (json_object_get(shot, "merged"))
        snprintf(start + n, sizeof start - (size_t)n, "-%lld",
                 json_integer_value(json_object_get(shot, "end")));
    if (!json_object_get(shots, start))
        json_object_set_new(shots, start, json_object());
    return json_object_get(shots, start);
}

/* ---- one score ----------------------------------------------------------------------------- */

static json_t *request_of(const scored_video *v, const json_t *shot)
{
    return json_pack("{s:s,s:[O,O],s:[O,O],s:O}", "source", v->name, "shot",
                     json_object_get(shot, "start"), json_object_get(shot, "end"), "seconds",
                     json_object_get(shot, "start_seconds"), json_object_get(shot, "end_seconds"),
                     "scores", json_object_get(shot, "scores"));
}

static weft_status score_process(weft_shot_scorer *s, int i, const scored_video *v,
                                 const json_t *shot, const weft_shot_frames *f, double *score)
{
    const weft_operator_config *c = s->set->op[i].config;
    if (!s->process[i]) {
        WEFT_TRY(weft_process_scorer_open(c, s->options.beat, s->options.user, &s->process[i]));
        s->loads++;
    }
    json_t *request = request_of(v, shot);
    WEFT_TRY(WEFT_ALLOCATED(request, "a request"));
    const weft_status_code status = weft_process_scorer_score(s->process[i], request, f, score);
    json_decref(request);
    return status;
}

static weft_status score_aesthetics(const weft_shot_scorer *s, int i, const json_t *shot,
                                    double *score)
{
    int64_t width = 0;
    const float *embedding =
        s->options.embedding ? s->options.embedding(s->options.user, shot, &width) : NULL;
    return embedding
               ? weft_aesthetics_head_score(s->head[i], embedding, width, score)
               : weft_error(WEFT_MSG_SCORER_FAILED, WEFT_AT(.key = s->set->op[i].config->name),
                            "the shot has no embedding");
}

static weft_status score_text(const weft_shot_scorer *s, int i, scored_video *v, const json_t *shot,
                              const weft_shot_frames *f, double *score)
{
    char name[48];
    weft_text_found found;
    json_t *scores = weft_shot_scores_of(v->scores, shot);
    WEFT_TRY(weft_text_scorer_score(s->text[i], f, &found));
    snprintf(name, sizeof name, "%s.boxes", s->set->op[i].config->name);
    json_object_set_new(scores, name, found.boxes);
    snprintf(name, sizeof name, "%s.rows", s->set->op[i].config->name);
    if (s->set->op[i].config->crop > 0)
        json_object_set_new(scores, name, json_pack("[f,f]", found.rows[0], found.rows[1]));
    *score = found.share;
    return WEFT_OK;
}

/* The frames that an operator sees. */
static weft_status take_frames(weft_shot_scorer *s, int i, scored_video *v, const json_t *shot,
                               const weft_shot_frames **f)
{
    const weft_operator_config *c = s->set->op[i].config;
    const int64_t side = s->set->op[i].kind == WEFT_OPERATOR_MEASURE ? 0 : c->side;
    json_t *area = c->after_crop
                       ? weft_operator_set_crop(s->set, shot, weft_shot_scores_of(v->scores, shot))
                       : NULL;
    if (!area)
        return weft_shot_decoder_get(v->frames, shot, c->frames, side, f);
    json_t *cropped = json_copy((json_t *)shot);
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(cropped, "frames"));
    json_object_set(cropped, "picture", area);
    WEFT_GO(weft_shot_decoder_get(v->frames, cropped, c->frames, side, f));
out:
    json_decref(cropped);
    json_decref(area);
    return status;
}

static weft_status open_frames(weft_shot_scorer *s, scored_video *v)
{
    const char *path = v->path;
    if (s->options.locate) {
        const weft_status_code status = s->options.locate(s->options.user, &path);
        v->unreachable = status == WEFT_E_IO || status == WEFT_E_SPACE;
        WEFT_TRY(status);
    }
    return weft_shot_decoder_open(path, s->options.stall_seconds, s->options.beat, s->options.user,
                                  &v->frames);
}

static weft_status score_shot(weft_shot_scorer *s, int i, scored_video *v, const json_t *shot,
                              double *score)
{
    const weft_operator *op = &s->set->op[i];
    const weft_operator_config *c = op->config;
    const weft_shot_frames *f;
    if (op->kind == WEFT_OPERATOR_AESTHETICS)
        return score_aesthetics(s, i, shot, score);
    if (!v->frames)
        WEFT_TRY(open_frames(s, v));
    WEFT_TRY(take_frames(s, i, v, shot, &f));
    switch (op->kind) {
    case WEFT_OPERATOR_MEASURE:
        return weft_technical_quality((weft_operator_measure)c->measure, f->rgb, f->count, f->width,
                                      f->height, score);
    case WEFT_OPERATOR_TEXT: return score_text(s, i, v, shot, f, score);
    case WEFT_OPERATOR_PROCESS: return score_process(s, i, v, shot, f, score);
    default: return weft_onnx_scorer_score(s->onnx[i], f, score);
    }
}

static void add_number(json_t *scores, const char *group, const char *name, double amount)
{
    json_t *object = json_object_get(scores, group);
    json_object_set_new(object, name,
                        json_real(json_number_value(json_object_get(object, name)) + amount));
}

/* Opens the model of an operator, if it has one. An error is a fault of the config. */
static weft_status open_model(weft_shot_scorer *s, int i)
{
    const weft_operator_config *c = s->set->op[i].config;
    const weft_operator_kind kind = s->set->op[i].kind;
    if (s->onnx[i] || s->text[i] || s->head[i])
        return WEFT_OK;
    if (kind == WEFT_OPERATOR_ONNX)
        WEFT_TRY(weft_onnx_scorer_open(c, &s->onnx[i]));
    else if (kind == WEFT_OPERATOR_TEXT)
        WEFT_TRY(weft_text_scorer_open(c, &s->text[i]));
    else if (kind == WEFT_OPERATOR_AESTHETICS)
        WEFT_TRY(weft_aesthetics_head_open(c->aesthetics, &s->head[i]));
    else
        return WEFT_OK;
    s->loads++;
    return WEFT_OK;
}

/* Scores a shot by one operator. A failure is a part of the record. */
static weft_status record_score(weft_shot_scorer *s, int i, scored_video *v, const json_t *shot)
{
    const char *name = s->set->op[i].config->name;
    const double began = weft_now(), decoded = v->frames ? weft_shot_decoder_seconds(v->frames) : 0;
    json_t *scores = weft_shot_scores_of(v->scores, shot);
    double score = 0;
    WEFT_TRY(open_model(s, i));
    const weft_status_code status = score_shot(s, i, v, shot, &score);
    if (status == WEFT_E_MEMORY || status == WEFT_E_TOO_LARGE || status == WEFT_E_CANCELLED ||
        v->unreachable)
        return status;
    json_object_set_new(scores, name,
                        status == WEFT_OK ? json_real(score)
                                          : json_pack("{s:s}", "failed", weft_error_text()));
    const double decode = (v->frames ? weft_shot_decoder_seconds(v->frames) : 0) - decoded;
    add_number(v->scores, "seconds", name, weft_now() - began - decode);
    add_number(v->scores, "seconds", "decode", decode);
    add_number(v->scores, "scored", name, 1);
    return WEFT_OK;
}

/* Asks the operators for a shot. */
static weft_status score_by_order(weft_shot_scorer *s, scored_video *v, const json_t *shot)
{
    double facts[WEFT_FACTS];
    weft_shot_decision d;
    weft_shot_facts(shot, facts);
    for (int k = 0; k < s->set->count; k++) {
        const int i = s->set->order[k];
        const json_t *scores = weft_shot_scores_of(v->scores, shot);
        weft_operator_set_decide(s->set, facts, scores, &d);
        if (d.by >= 0 && !s->options.all)
            return WEFT_OK;
        if (!s->set->op[i].expression && !json_object_get(scores, s->set->op[i].config->name))
            WEFT_TRY(record_score(s, i, v, shot));
    }
    return WEFT_OK;
}

weft_status weft_shot_scorer_video(weft_shot_scorer *s, const char *path, const char *name,
                                   const json_t *record, json_t *scores)
{
    scored_video v = {.path = path, .name = name, .scores = scores};
    weft_status_code status = WEFT_OK;
    size_t k;
    json_t *shot;
    json_array_foreach(json_object_get(record, "shots"), k, shot)
    {
        if (!json_object_get(shot, "reject"))
            WEFT_GO(score_by_order(s, &v, shot));
        if (s->options.beat)
            s->options.beat(s->options.user);
    }
out:
    weft_shot_decoder_close(v.frames);
    return status;
}
