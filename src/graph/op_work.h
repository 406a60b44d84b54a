/* Classes of work, which graphs and the planners' lists of operators share. */
#ifndef WEFT_GRAPH_OP_WORK_H
#define WEFT_GRAPH_OP_WORK_H

/* Limit of an operator, which selects the achieved fraction of a device. */
typedef enum weft_work {
    WEFT_WORK_GEMM,      /* dense products */
    WEFT_WORK_ATTENTION, /* softmax(QK^T)V; work grows with the square of the tokens */
    WEFT_WORK_CONV,      /* 2D and 3D convolutions */
    WEFT_WORK_MEMORY,    /* norms, modulation, residuals, copies: limited by bytes */
    WEFT_WORK_COUNT,
} weft_work;

#endif
