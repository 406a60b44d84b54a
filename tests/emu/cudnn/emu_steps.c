/* Graphs of steps: products of matrices, sums over columns, pointwise operations and reshapes. */
#include "emu_cudnn.h"

enum { ROWS = 64 };

bool dnn_is_step(int kind)
{
    return kind == KIND_OP_POINTWISE || kind == KIND_OP_MATMUL || kind == KIND_OP_REDUCTION ||
           kind == KIND_OP_RESHAPE;
}

int dnn_step_tensors(const dnn_descriptor *op, const dnn_descriptor *tensor[3])
{
    static const int names[][3] = {{751, 752, 753}, {1520, 1521, 1522}, {1610, 1611}, {2200, 2201}};
    const int *name = names[op->kind == KIND_OP_POINTWISE   ? 0
                            : op->kind == KIND_OP_MATMUL    ? 1
                            : op->kind == KIND_OP_REDUCTION ? 2
                                                            : 3];
    int count = 0;
    for (int i = 0; i < 3 && name[i]; i++)
        if (dnn_find(op, name[i]))
            tensor[count++] = dnn_sub(op, name[i], 0);
    return count;
}

static int64_t elements(const int64_t dim[DNN_DIMS], int rank)
{
    int64_t count = 1;
    for (int i = 0; i < rank; i++)
        count *= dim[i];
    return count;
}

/* Whether `small` has the extents of `large`, or 1. */
static bool fits(const int64_t small[DNN_DIMS], const int64_t large[DNN_DIMS], int rank)
{
    for (int i = 0; i < rank; i++)
        if (small[i] != large[i] && small[i] != 1)
            return false;
    return true;
}

static bool is_product(int64_t dim[3][DNN_DIMS], int rank)
{
    bool is = rank >= 3;
    for (int i = 0; is && i < rank - 2; i++)
        is = dim[0][i] == dim[2][i] && dim[1][i] == dim[2][i];
    return is && dim[0][rank - 2] == dim[2][rank - 2] && dim[0][rank - 1] == dim[1][rank - 2] &&
           dim[1][rank - 1] == dim[2][rank - 1];
}

cudnnStatus_t dnn_check_step(const dnn_descriptor *op)
{
    const dnn_descriptor *t[3];
    int64_t dim[3][DNN_DIMS];
    const int count = dnn_step_tensors(op, t), rank = dnn_extents(t[0], 902, dim[0]);
    bool is = true;
    for (int i = 1; i < count; i++)
        is = is && dnn_extents(t[i], 902, dim[i]) == rank;
    if (is && op->kind == KIND_OP_POINTWISE) {
        const int64_t mode = dnn_int(dnn_sub(op, 750, 0), 0, 0);
        if (count != (mode == MODE_EXP || mode == MODE_IDENTITY ? 2 : 3))
            return dnn_refuse(BAD_PARAM, "mode %lld with %d operands", (long long)mode, count - 1);
        is = fits(dim[0], dim[count - 1], rank) && fits(dim[count - 2], dim[count - 1], rank);
    } else if (is && op->kind == KIND_OP_MATMUL) {
        is = is_product(dim, rank);
    } else if (is) {
        is = op->kind == KIND_OP_REDUCTION ? fits(dim[1], dim[0], rank)
                                           : elements(dim[0], rank) == elements(dim[1], rank);
    }
    return is ? SUCCESS
              : dnn_refuse(BAD_PARAM, "extents of an operation of kind %d do not match", op->kind);
}

/* How many operations before `end` write the tensor, or read it from `begin`. */
static int uses(const dnn_descriptor *graph, int64_t id, int64_t begin, int64_t end, bool writes)
{
    const dnn_descriptor *t[3];
    int found = 0;
    for (int64_t i = begin; i < end; i++) {
        const int count = dnn_step_tensors(dnn_sub(graph, 801, i), t);
        for (int k = writes ? count - 1 : 0; k < (writes ? count : count - 1); k++)
            found += dnn_int(t[k], 906, 0) == id;
    }
    return found;
}

/* Virtual tensors are written before they are read, and no tensor is written twice. */
cudnnStatus_t dnn_check_steps(const dnn_descriptor *graph)
{
    const int64_t count = dnn_find(graph, 801)->count;
    for (int64_t i = 0; i < count; i++) {
        const dnn_descriptor *op = dnn_sub(graph, 801, i), *t[3];
        if (!dnn_is_step(op->kind))
            return dnn_refuse(NOT_SUPPORTED_GRAPH_PATTERN, "an operation of kind %d", op->kind);
        const int tensors = dnn_step_tensors(op, t);
        for (int k = 0; k < tensors; k++) {
            const bool is_virtual = dnn_find(t[k], 907) && dnn_int(t[k], 907, 0);
            const int64_t id = dnn_int(t[k], 906, 0);
            const int written = uses(graph, id, 0, k == tensors - 1 ? i + 1 : i, true);
            if (written > 1)
                return dnn_refuse(BAD_PARAM, "tensor %lld is written twice", (long long)id);
            if (is_virtual &&
                (!written || (k == tensors - 1 && !uses(graph, id, i + 1, count, false))))
                return dnn_refuse(BAD_PARAM, "virtual tensor %lld has no producer or no consumer",
                                  (long long)id);
        }
    }
    return SUCCESS;
}

/* The first product has rows and columns of scores. */
int64_t dnn_steps_workspace(const dnn_descriptor *graph)
{
    int64_t dim[DNN_DIMS];
    for (int64_t i = 0; i < dnn_find(graph, 801)->count; i++) {
        const dnn_descriptor *op = dnn_sub(graph, 801, i);
        if (op->kind != KIND_OP_MATMUL)
            continue;
        (void)dnn_extents(dnn_sub(op, 1522, 0), 902, dim);
        return dim[0] * dim[1] * ((dim[2] + ROWS - 1) / ROWS * ROWS) *
               ((dim[3] + ROWS - 1) / ROWS * ROWS) * 2;
    }
    return 0;
}
