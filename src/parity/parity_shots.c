/* weft parity of the shot detector: logits of the first window, probabilities of every frame, and
 * the shots that follow from them. */
#include "cli/parity.h"

#include "curate/transnet.h"

#include <stdio.h>
#include <string.h>

enum { KINDS = 2 };
static const double tolerance = 1e-4; /* of probabilities, absolute; logits relative */
static const double threshold = 0.5;

/* What was heard of a kind of transition, and the shots by it. */
typedef struct hearing {
    float *said; /* [frames] */
    weft_transnet_run run;
    int64_t (*shot)[2], shots, capacity, begin;
} hearing;

typedef struct detection {
    weft_transnet *network;
    hearing of[KINDS];                        /* single, many */
    float first[KINDS][WEFT_TRANSNET_WINDOW]; /* logits of the first window */
    int64_t frames;
} detection;

static const char *const out_names[KINDS] = {"out.single_frame", "out.many_hot"},
                         *const logit_names[KINDS] = {"out.window0_single_logits",
                                                      "out.window0_many_logits"},
                         *const scene_names[KINDS] = {"scenes", "scenes_many_hot"};

static weft_status add_shot(hearing *h, int64_t first, int64_t last)
{
    WEFT_TRY(weft_grow((void **)&h->shot, h->shots, &h->capacity, sizeof *h->shot));
    h->shot[h->shots][0] = first;
    h->shot[h->shots++][1] = last;
    return WEFT_OK;
}

static weft_status hear(hearing *h, int64_t frame, float probability)
{
    const bool was = h->run.on, ends = weft_transnet_run_add(&h->run, frame, probability);
    h->said[frame] = probability;
    if (!was && h->run.on && frame > 0)
        WEFT_TRY(add_shot(h, h->begin, frame));
    if (ends)
        h->begin = frame;
    return WEFT_OK;
}

static weft_status listen(void *user, const weft_transnet_said *said)
{
    detection *d = user;
    for (int k = 0; k < KINDS && said->frame == 0; k++)
        memcpy(d->first[k], weft_transnet_logits(d->network, k == 1), sizeof d->first[k]);
    WEFT_TRY(hear(&d->of[0], said->frame, said->single));
    return hear(&d->of[1], said->frame, said->many);
}

static weft_status look(weft_parity *p, const weft_tensors *weights, const char *prefix,
                        const weft_stored_tensor *frames, detection *d)
{
    WEFT_TRY(weft_transnet_create(weights, prefix, p->backend, 0, listen, d, &d->network));
    const uint8_t *rgb = frames->data;
    for (int64_t i = 0; i < d->frames; i++)
        WEFT_TRY(weft_transnet_push(d->network, rgb + i * WEFT_TRANSNET_BYTES));
    WEFT_TRY(weft_transnet_finish(d->network));
    for (int k = 0; k < KINDS; k++)
        if (!d->of[k].run.on || !d->of[k].shots)
            WEFT_TRY(add_shot(&d->of[k], d->of[k].run.on ? 0 : d->of[k].begin, d->frames - 1));
    return WEFT_OK;
}

static weft_status compare_numbers(weft_parity *p, const char *name, const float *ours,
                                   int64_t count, bool relative, double *worst)
{
    const weft_stored_tensor *t;
    WEFT_TRY(weft_parity_need(p, name, &t));
    if (t->count != count)
        return weft_fail(WEFT_E_SHAPE, "%s: \"%s\" has %lld numbers, not %lld", p->file, name,
                         (long long)t->count, (long long)count);
    float *theirs = weft_alloc((count + 1) * (int64_t)sizeof *theirs);
    if (!theirs)
        return weft_fail(WEFT_E_MEMORY, "%s: out of memory", p->file);
    weft_tensor_to_f32(t, theirs);
    weft_parity_judge(p, "output", name + 4, ours, theirs, count,
                      relative ? weft_parity_norm(theirs, count) : 1, tolerance, worst);
    weft_free(theirs);
    return WEFT_OK;
}

static void compare_shots(weft_parity *p, const char *name, const hearing *h)
{
    const json_t *list = json_object_get(p->json, name), *shot;
    size_t i;
    if (!list)
        return;
    bool same = (int64_t)json_array_size(list) == h->shots;
    json_array_foreach(list, i, shot) for (size_t k = 0; same && k < 2; k++) same =
        json_integer_value(json_array_get(shot, k)) == h->shot[i][k];
    p->compared++;
    p->failures += !same;
    if (!same || p->verbose)
        printf("  shots    %-60s %lld, %s\n", name, (long long)h->shots,
               same ? "the same" : "not the reference's  FAIL");
}

/* The sizes that the file says, against those that the weights tell. */
static weft_status compare_sizes(const weft_parity *p, const weft_transnet_config *c)
{
    const struct {
        const char *key;
        int64_t ours;
    } size[] = {{"F", c->filters},
                {"L", c->stacks},
                {"S", c->blocks},
                {"D", c->dense},
                {"lookup_window", c->lookup},
                {"similarity_dim", c->similarity},
                {"output_dim", c->output}};
    for (size_t i = 0; i < sizeof size / sizeof *size; i++) {
        const json_t *said = json_object_get(p->json, size[i].key);
        if (said && json_integer_value(said) != size[i].ours)
            return weft_fail(WEFT_E_FORMAT, "%s: \"%s\" is %lld, of the weights %lld",
                             p->config_file, size[i].key, (long long)json_integer_value(said),
                             (long long)size[i].ours);
    }
    return WEFT_OK;
}

static weft_status compare_with(weft_parity *p, const weft_tensors *weights, const char *prefix)
{
    detection d = {0};
    double worst = 0;
    const weft_stored_tensor *frames;
    weft_status_code status = WEFT_OK;
    WEFT_TRY(weft_parity_need(p, "in.frames", &frames));
    d.frames = frames->count / WEFT_TRANSNET_BYTES;
    if (frames->dtype != WEFT_U8 || frames->count % WEFT_TRANSNET_BYTES || d.frames < 1)
        return weft_fail(WEFT_E_SHAPE, "%s: \"in.frames\" are not u8 pictures of %d x %d", p->file,
                         WEFT_TRANSNET_WIDTH, WEFT_TRANSNET_HEIGHT);
    for (int k = 0; k < KINDS; k++) {
        d.of[k].said = weft_alloc(d.frames * (int64_t)sizeof(float));
        d.of[k].run.threshold = threshold;
        if (!d.of[k].said)
            WEFT_GO(weft_fail(WEFT_E_MEMORY, "%s: out of memory", p->file));
    }
    WEFT_GO(look(p, weights, prefix, frames, &d));
    WEFT_GO(compare_sizes(p, weft_transnet_sizes(d.network)));
    for (int k = 0; k < KINDS; k++) {
        if (weft_tensors_find(p->golden, logit_names[k]))
            WEFT_GO(
                compare_numbers(p, logit_names[k], d.first[k], WEFT_TRANSNET_WINDOW, true, &worst));
        WEFT_GO(compare_numbers(p, out_names[k], d.of[k].said, d.frames, false, &worst));
        compare_shots(p, scene_names[k], &d.of[k]);
    }
    printf("%s: %lld frames, worst error of logits and probabilities %.2e (limit %.0e), %lld "
           "shots\n",
           p->file, (long long)d.frames, worst, tolerance, (long long)d.of[0].shots);
out:
    weft_transnet_free(d.network);
    for (int k = 0; k < KINDS; k++) {
        weft_free(d.of[k].said);
        weft_free(d.of[k].shot);
    }
    return status;
}

static bool is_shots(const json_t *json)
{
    const char *name = json_string_value(json_object_get(json, "_class_name"));
    return name && !strcmp(name, "TransNetV2");
}

static weft_status compare(weft_parity *p)
{
    weft_tensors *weights;
    if (!p->weights_file && weft_tensors_find(p->golden, "param.fc1.weight"))
        return compare_with(p, p->golden, "param.");
    if (!p->weights_file) {
        const json_t *said = json_object_get(p->json, "weights");
        const char *get = json_string_value(json_object_get(said, "get"));
        return weft_fail(WEFT_E_NOT_FOUND,
                         "%s: the weights are not in it; give them with --weights FILE%s%s",
                         p->config_file, get ? ". It says how to get them: " : "", get ? get : "");
    }
    WEFT_TRY(weft_tensors_open(p->weights_file, &weights));
    const weft_status_code status = compare_with(p, weights, "");
    weft_tensors_close(weights);
    return status;
}

const weft_parity_kind weft_parity_shots = {"shots", is_shots, compare};
