#include "evaluate/frame_interpolation.h"

#include "base/memory.h"
#include "base/message.h"
#include "evaluate/flow_sampling.h"
#include "exec/execute.h"
#include "exec/program.h"
#include "format/tensors/tensors.h"
#include "format/tensors/tensors_finite.h"
#include "model/critics/amt.h"

#include <math.h>
#include <string.h>

enum { LEVELS = WEFT_AMT_LEVELS };

/* A part of the network and its weights. */
typedef struct part_program {
    weft_graph *graph;
    weft_store *store;
    weft_program *program;
} part_program;

struct weft_frame_interpolation {
    weft_tensors *file;
    part_program part[WEFT_AMT_PARTS]; /* for images of height x width */
    int64_t height, width;             /* of the padded images; 0: nothing is compiled */
    int64_t top, left;                 /* padding */
    float mean;                        /* of both images */
    /* values of the first and the second frame, owned */
    weft_plane image[2], pyramid[2][LEVELS], feature[2][LEVELS];
    weft_plane warped; /* an image, owned */
};

/* ---- weights and programs ------------------------------------------------------------------- */

/* Reverses rows and columns of the kernels of a transposed convolution. */
static void reverse_kernels(float *data, int64_t kernels)
{
    enum { SIZE = 16 };
    for (int64_t k = 0; k < kernels; k++, data += SIZE)
        for (int i = 0; i < SIZE / 2; i++) {
            const float kept = data[i];
            data[i] = data[SIZE - 1 - i];
            data[SIZE - 1 - i] = kept;
        }
}

static weft_status load_tensor(const weft_tensors *file, weft_tensor *to)
{
    static const char grows[] = ".convblock.2.weight";
    const weft_stored_tensor *from = weft_tensors_find(file, to->name);
    bool same = from && from->rank == to->shape.rank;
    for (int d = 0; same && d < from->rank; d++)
        same = from->dim[d] == to->shape.dim[d];
    if (!same)
        return weft_error(from ? WEFT_MSG_TENSOR_SHAPE : WEFT_MSG_TENSOR_MISSING,
                          WEFT_AT(.file = weft_tensors_path(file), .key = to->name),
                          "the tensor is %s; the file amt-s.pth of AMT is needed",
                          from ? "of another shape" : "missing");
    WEFT_TRY(weft_stored_check_finite(from));
    weft_tensor_to_f32(from, to->data);
    const size_t length = strlen(to->name);
    if (length > strlen(grows) && !strcmp(to->name + length - strlen(grows), grows))
        reverse_kernels(to->data, to->shape.dim[0] * to->shape.dim[1]);
    return WEFT_OK;
}

static weft_status compile(weft_frame_interpolation *n, weft_amt_part part)
{
    part_program *p = &n->part[part];
    p->graph = weft_graph_create();
    p->store = weft_store_create();
    WEFT_TRY(WEFT_ALLOCATED(p->graph && p->store, "the interpolation of frames"));
    weft_amt_build(p->graph, part, n->height, n->width);
    WEFT_TRY(weft_graph_check(p->graph));
    weft_store_defer_draws(p->store);
    WEFT_TRY(weft_store_init(p->store, p->graph, 0));
    for (int64_t i = 0; i < weft_store_count(p->store); i++)
        WEFT_TRY(load_tensor(n->file, weft_store_at(p->store, i)));
    WEFT_TRY(weft_program_compile(p->graph, &(weft_program_options){0}, &p->program));
    return weft_program_bind(p->program, p->store, NULL);
}

static weft_status new_plane(int64_t rows, int64_t columns, int64_t channels, weft_plane *plane)
{
    *plane = (weft_plane){.rows = rows, .columns = columns, .channels = channels, .step = channels};
    return WEFT_NEW(plane->at, rows * columns * channels, "the interpolation of frames");
}

static void close_size(weft_frame_interpolation *n)
{
    for (int i = 0; i < WEFT_AMT_PARTS; i++) {
        weft_program_free(n->part[i].program);
        weft_store_free(n->part[i].store);
        weft_graph_free(n->part[i].graph);
        n->part[i] = (part_program){0};
    }
    for (int s = 0; s < 2; s++) {
        weft_free(n->image[s].at);
        n->image[s].at = NULL;
        for (int k = 0; k < LEVELS; k++) {
            weft_free(n->pyramid[s][k].at);
            weft_free(n->feature[s][k].at);
            n->pyramid[s][k].at = n->feature[s][k].at = NULL;
        }
    }
    weft_free(n->warped.at);
    n->warped.at = NULL;
    n->height = n->width = 0;
}

/* Compiles the programs for images of height x width. */
static weft_status open_size(weft_frame_interpolation *n, int64_t height, int64_t width)
{
    close_size(n);
    for (int s = 0; s < 2; s++) {
        WEFT_TRY(new_plane(height, width, 3, &n->image[s]));
        for (int k = 0; k < LEVELS; k++) {
            WEFT_TRY(new_plane(height >> (k + 1), width >> (k + 1), weft_amt_channels[k],
                               &n->pyramid[s][k]));
            WEFT_TRY(
                new_plane(height >> (k + 3), width >> (k + 3), WEFT_AMT_WIDTH, &n->feature[s][k]));
        }
    }
    WEFT_TRY(new_plane(height, width, 3, &n->warped));
    n->height = height;
    n->width = width;
    for (int i = 0; i < WEFT_AMT_PARTS; i++)
        WEFT_TRY(compile(n, (weft_amt_part)i));
    return WEFT_OK;
}

weft_status weft_frame_interpolation_open(const char *path, weft_frame_interpolation **network)
{
    weft_frame_interpolation *n;
    WEFT_TRY(WEFT_NEW(n, 1, "the interpolation of frames"));
    const weft_status_code status = weft_tensors_open(path, &n->file);
    if (status != WEFT_OK)
        weft_frame_interpolation_close(n);
    else
        *network = n;
    return status;
}

void weft_frame_interpolation_close(weft_frame_interpolation *n)
{
    if (!n)
        return;
    close_size(n);
    weft_tensors_close(n->file);
    weft_free(n);
}

static weft_plane plane_of(const weft_tensor *t)
{
    const int64_t *dim = t->shape.dim;
    return (weft_plane){t->data, dim[2], dim[3], dim[4], dim[4]};
}

static weft_plane input_of(weft_frame_interpolation *n, weft_amt_part part, const char *name)
{
    return plane_of(weft_program_input(n->part[part].program, name));
}

static weft_plane output_of(weft_frame_interpolation *n, weft_amt_part part, const char *name)
{
    return plane_of(weft_program_output(n->part[part].program, name));
}

/* ---- one pair of frames --------------------------------------------------------------------- */

static int64_t clamped(int64_t at, int64_t count)
{
    return at < 0 ? 0 : at >= count ? count - 1 : at;
}

static void pad_image(const weft_frame_interpolation *n, const uint8_t *rgb, int64_t height,
                      int64_t width, weft_plane to)
{
    for (int64_t y = 0; y < to.rows; y++)
        for (int64_t x = 0; x < to.columns; x++)
            for (int c = 0; c < 3; c++)
                to.at[(y * to.columns + x) * 3 + c] =
                    (float)rgb[(clamped(y - n->top, height) * width + clamped(x - n->left, width)) *
                                   3 +
                               c] /
                    255.0f;
}

/* Subtracts the mean of both images. */
static void centre(weft_frame_interpolation *n)
{
    const int64_t values = n->height * n->width * 3;
    double sum = 0;
    for (int s = 0; s < 2; s++)
        for (int64_t i = 0; i < values; i++)
            sum += n->image[s].at[i];
    n->mean = (float)(sum / (double)(2 * values));
    for (int s = 0; s < 2; s++)
        for (int64_t i = 0; i < values; i++)
            n->image[s].at[i] -= n->mean;
}

static weft_status encode(weft_frame_interpolation *n, int s)
{
    static const char *const outputs[LEVELS] = {"y1", "y2", "y3", "y4"};
    weft_plane_copy(n->image[s], 1, input_of(n, WEFT_AMT_FEATURES, "x"));
    WEFT_TRY(weft_program_run(n->part[WEFT_AMT_FEATURES].program));
    weft_plane_copy(output_of(n, WEFT_AMT_FEATURES, "y"), 1, n->feature[s][0]);
    for (int k = 1; k < LEVELS; k++)
        weft_plane_halve(n->feature[s][k - 1], n->feature[s][k]);
    weft_plane_copy(n->image[s], 1, input_of(n, WEFT_AMT_PYRAMID, "x"));
    WEFT_TRY(weft_program_run(n->part[WEFT_AMT_PYRAMID].program));
    for (int k = 0; k < LEVELS; k++)
        weft_plane_copy(output_of(n, WEFT_AMT_PYRAMID, outputs[k]), 1, n->pyramid[s][k]);
    return WEFT_OK;
}

/* Correlations of both frames at 1/8 of the size. The flows lead from the middle to the frames, so
 * twice a flow leads from one frame to the other. */
static void correlate(const weft_frame_interpolation *n, weft_plane flow, weft_plane to)
{
    const int64_t side = 2 * WEFT_AMT_RADIUS + 1, each = side * side;
    const float factor = 1 / sqrtf(WEFT_AMT_WIDTH);
    for (int s = 0; s < 2; s++)
        for (int k = 0; k < LEVELS; k++)
            weft_plane_correlate(n->feature[s][0], n->feature[1 - s][k],
                                 weft_plane_of(flow, 2 * (1 - s), 2), 2, k, WEFT_AMT_RADIUS, factor,
                                 weft_plane_of(to, (s * LEVELS + k) * each, each));
}

/* Adds the changes of an update, computed at 1/8 of the size, to state and flow. */
static weft_status update(weft_frame_interpolation *n, weft_amt_part part, weft_plane flow,
                          weft_plane state)
{
    const weft_plane in = input_of(n, part, "flow");
    const float by = (float)flow.rows / (float)in.rows;
    weft_plane more[2] = {{0}, {0}};
    weft_status_code status = WEFT_OK;
    weft_plane_resize(flow, 1 / by, in);
    weft_plane_resize(state, 1, input_of(n, part, "state"));
    correlate(n, in, input_of(n, part, "corr"));
    WEFT_GO(weft_program_run(n->part[part].program));
    WEFT_GO(new_plane(flow.rows, flow.columns, flow.channels, &more[0]));
    WEFT_GO(new_plane(state.rows, state.columns, state.channels, &more[1]));
    weft_plane_resize(output_of(n, part, "flow"), by, more[0]);
    weft_plane_resize(output_of(n, part, "state"), 1, more[1]);
    weft_plane_add(more[0], 1, flow);
    weft_plane_add(more[1], 1, state);
out:
    weft_free(more[0].at);
    weft_free(more[1].at);
    return status;
}

/* Puts the input of a decoder together: state, both features warped by their flows, and the flows.
 */
static void join(weft_frame_interpolation *n, int level, weft_plane flow, weft_plane state,
                 weft_plane to)
{
    const int64_t each = state.channels;
    weft_plane_copy(state, 1, weft_plane_of(to, 0, each));
    for (int s = 0; s < 2; s++)
        weft_plane_warp(n->pyramid[s][level - 1], weft_plane_of(flow, 2 * s, 2),
                        weft_plane_of(to, (1 + s) * each, each));
    weft_plane_copy(flow, 1, weft_plane_of(to, 3 * each, 4));
}

/* Runs decoder 4, 3 or 2, whose output has the flows and the state of the next one. A flow of the
 * decoder before is added in twice the size. */
static weft_status decode(weft_frame_interpolation *n, int level, weft_plane before,
                          weft_plane flow, weft_plane state)
{
    const weft_amt_part part = (weft_amt_part)(WEFT_AMT_DECODE4 + 4 - level),
                        change = (weft_amt_part)(WEFT_AMT_UPDATE4 + 4 - level);
    WEFT_TRY(weft_program_run(n->part[part].program));
    const weft_plane y = output_of(n, part, "y");
    if (before.at)
        weft_plane_resize(before, 2, flow);
    else
        weft_plane_copy(y, 0, flow);
    weft_plane_add(y, 1, flow);
    weft_plane_copy(weft_plane_of(y, 4, state.channels), 1, state);
    return update(n, change, flow, state);
}

/* Adds the three predictions of decoder 1 into the input of COMBINE. */
static weft_status predict(weft_frame_interpolation *n, weft_plane before)
{
    const int64_t positions = n->height * n->width;
    const weft_plane y = output_of(n, WEFT_AMT_DECODE1, "y"),
                     to = input_of(n, WEFT_AMT_COMBINE, "x");
    weft_plane flow = {0};
    WEFT_TRY(new_plane(n->height, n->width, 4, &flow));
    for (int k = 0; k < WEFT_AMT_FLOWS; k++) {
        weft_plane_resize(before, 2, flow);
        const weft_plane prediction = weft_plane_of(to, 3 * k, 3);
        weft_plane_copy(weft_plane_of(y, 9 * 2 - 3 + 3 * k, 3), 1, prediction);
        for (int s = 0; s < 2; s++) {
            weft_plane_add(weft_plane_of(y, 6 * s + 2 * k, 2), 1, weft_plane_of(flow, 2 * s, 2));
            weft_plane_warp(n->image[s], weft_plane_of(flow, 2 * s, 2), n->warped);
            for (int64_t i = 0; i < positions; i++) {
                const float logit = y.at[i * y.step + 12 + k], share = 1 / (1 + expf(-logit));
                for (int c = 0; c < 3; c++)
                    prediction.at[i * to.step + c] +=
                        (s ? 1 - share : share) * n->warped.at[i * 3 + c] + (s ? n->mean : 0);
            }
        }
    }
    weft_free(flow.at);
    return WEFT_OK;
}

/* The mean of the predictions and the output of COMBINE, in 8 bits, without the padding. */
static void finish(weft_frame_interpolation *n, int64_t height, int64_t width, uint8_t *middle)
{
    const weft_plane in = input_of(n, WEFT_AMT_COMBINE, "x"),
                     out = output_of(n, WEFT_AMT_COMBINE, "y");
    for (int64_t y = 0; y < height; y++)
        for (int64_t x = 0; x < width; x++) {
            const int64_t at = (y + n->top) * n->width + x + n->left;
            const float *p = in.at + at * in.step;
            for (int c = 0; c < 3; c++) {
                const float value = (p[c] + p[3 + c] + p[6 + c]) / 3 + out.at[at * out.step + c];
                middle[(y * width + x) * 3 + c] = (uint8_t)(fmaxf(0, fminf(1, value)) * 255.0f);
            }
        }
}

/* flow[k] and state[k] are the results of decoder 4 - k. */
static weft_status interpolate(weft_frame_interpolation *n, weft_plane flow[3], weft_plane state[3])
{
    weft_plane x = input_of(n, WEFT_AMT_DECODE4, "x");
    for (int s = 0; s < 2; s++)
        weft_plane_copy(n->pyramid[s][3], 1,
                        weft_plane_of(x, s * weft_amt_channels[3], weft_amt_channels[3]));
    for (int64_t i = 0; i < x.rows * x.columns; i++)
        x.at[i * x.step + x.channels - 1] = 0.5f; /* time of the middle */
    for (int k = 0; k < 3; k++) {
        if (k)
            join(n, 4 - k, flow[k - 1], state[k - 1],
                 input_of(n, (weft_amt_part)(WEFT_AMT_DECODE4 + k), "x"));
        WEFT_TRY(decode(n, 4 - k, k ? flow[k - 1] : (weft_plane){0}, flow[k], state[k]));
    }
    join(n, 1, flow[2], state[2], input_of(n, WEFT_AMT_DECODE1, "x"));
    WEFT_TRY(weft_program_run(n->part[WEFT_AMT_DECODE1].program));
    WEFT_TRY(predict(n, flow[2]));
    return weft_program_run(n->part[WEFT_AMT_COMBINE].program);
}

weft_status weft_frame_interpolation_run(weft_frame_interpolation *n, const uint8_t *before,
                                         const uint8_t *after, int64_t height, int64_t width,
                                         uint8_t *middle)
{
    const int64_t padded[2] = {(height + 15) / 16 * 16, (width + 15) / 16 * 16};
    weft_plane flow[3] = {{0}}, state[3] = {{0}};
    weft_status_code status = WEFT_OK;
    if (n->height != padded[0] || n->width != padded[1])
        WEFT_TRY(open_size(n, padded[0], padded[1]));
    n->top = (padded[0] - height) / 2;
    n->left = (padded[1] - width) / 2;
    pad_image(n, before, height, width, n->image[0]);
    pad_image(n, after, height, width, n->image[1]);
    centre(n);
    for (int s = 0; s < 2; s++)
        WEFT_GO(encode(n, s));
    for (int k = 0; k < 3; k++) {
        const int64_t rows = padded[0] >> (3 - k), columns = padded[1] >> (3 - k);
        WEFT_GO(new_plane(rows, columns, 4, &flow[k]));
        WEFT_GO(new_plane(rows, columns, weft_amt_channels[2 - k], &state[k]));
    }
    WEFT_GO(interpolate(n, flow, state));
    finish(n, height, width, middle);
out:
    for (int k = 0; k < 3; k++) {
        weft_free(flow[k].at);
        weft_free(state[k].at);
    }
    return status;
}
