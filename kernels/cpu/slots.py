"""Word positions in the shared memory that kernels and Python both read: the context, op records, attention tasks.

Plain module constants: Numba freezes a module's attributes. All words are int64; `operand(base, i)` reads word i.
"""

# ---- the context: one per tape, written by Python before a step, except the first two ----
STATE, DONE = 0, 8  # written by every thread: a cache line each
THREADS, SPINS, PATIENCE, PATIENCE_TICKS, QUIT = 16, 17, 18, 19, 20
STAGES, NUM_STAGES, TIMES = 21, 22, 23
TOKENS, LOGIT_TOKENS, LOGIT_ROWS = 24, 25, 26  # rows of the batch; rows whose logits are wanted; their address i64[N]
TOKEN_IDS, POSITIONS, SEQUENCES = 27, 28, 29  # addresses of i64[T]
SCRATCH, SCRATCH_BYTES = 30, 31
TOKEN_TYPES = 36  # address of i64[T]
ABORT = 32  # not 0: chunks are claimed and counted, but not computed; any thread may set it while a step is on
RUNS, SAVES = 33, 34  # addresses: i64[R, RUN_WORDS], one per sequence of the batch; i64[T], see below
ADAPTER_SCALES, MAX_ADAPTERS = 35, 16  # address of f32[rows, MAX_ADAPTERS]: how much of each adapter a row gets
PARKED = 40  # + 8 * thread: AWAKE, ASLEEP, CALLED (asleep, and Python must wake it) or AWAY
CONTEXT_WORDS = PARKED + 8 * 64
AWAKE, ASLEEP, CALLED, AWAY = 0, 1, 2, 3

# ---- the state word: stage index << 32, plus BIAS, plus chunks left to claim ----
IDLE, BIAS = 1 << 30, 1 << 20  # the stage index between steps; what keeps late claims from borrowing

# ---- a stage: ops without dependencies among them, whose chunks are counted together ----
STAGE_WORDS, FIRST_OP, STAGE_CHUNKS = 2, 0, 1

# ---- an op record: a kernel's address, its chunks, its calls (one per number that the kernel takes as `chunk`), how many of
# them a claimed chunk makes, then what the kernel's docstring lists ----
OP_WORDS, KERNEL, CHUNKS, CALLS, EACH, ARG = 40, 0, 1, 2, 3, 4

# ---- an attention task: queries of adjacent tokens of one sequence, over some splits of its cache;
# SINKS: 1 if the sink tokens that left the window come before the splits; LAST: the last position that any of them sees ----
TASK_WORDS, FIRST_TOKEN, NUM_TOKENS, FIRST_SPLIT, END_SPLIT, PARTIAL_ROW, TABLE, SINKS, LAST = 8, 0, 1, 2, 3, 4, 5, 6, 7
SPLIT = 256  # tokens of a split, at absolute positions: results do not depend on how splits are shared out

# ---- a run: the adjacent tokens of one sequence in the batch, for ops with a state. Word t of SAVES is the address of the record
# that gets the state after token t, 0 for none; the last token of a run has one. A layer's numbers lie at the same offset in
# every record. READ is never 0, never written in the same step, and all zeros for a sequence's first tokens ----
RUN_WORDS, RUN_FIRST, RUN_TOKENS, RUN_READ = 3, 0, 1, 2

# ---- how an elementwise op sends its rows out, and which activation it applies ----
STORE, ADD, QUANTISE = 0, 1, 2
PAIRS = 2  # flag beside ADD = 1 of a matrix kernel: rows of activations come in pairs, whose products are added
SILU, GELU, GELU_ERF, RELU, SIGMOID, SOFTPLUS, IDENTITY = range(7)

# ---- experts: a row of activations is one token's for one expert, `first` and `count` are that expert's rows. A slot is the same
# without a token, one for each used expert; GROUP_BYTES: a row's share of a group in an activation tile ----
ROW_WORDS, ROW_EXPERT, ROW_FIRST, ROW_COUNT, ROW_TOKEN = 4, 0, 1, 2, 3
GROUP_BYTES = 48
SOFTMAX_SCORES, SIGMOID_SCORES, SOFTMAX_OF_USED = 0, 1, 2
SWIGLU_CLAMPED = 100  # beside the activations

# ---- bytes of one query row's softmax state behind its sums: f32 top, and from byte 32 on eight lanes of its weights' sum ----
SOFTMAX_STATE_BYTES = 64
