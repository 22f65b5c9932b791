// Generated from the API's OpenAPI document by `npm run schema`. Do not edit.

export interface paths {
    "/restore/api/engines": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get Engines
         * @description Every start of an engine that this log knows, newest first.
         */
        get: operations["get_engines_api_engines_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/restore/api/events": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get Events
         * @description Rows in the order of the log: the next after `after`, or the last before `before`, or else the last of all.
         */
        get: operations["get_events_api_events_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/restore/api/events/stream": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Stream Events
         * @description Rows as they are written, from now on or after the given row. Resumes by `Last-Event-ID`.
         */
        get: operations["stream_events_api_events_stream_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/restore/api/policy": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get Policy
         * @description The newest policy and what every live engine answered to it.
         */
        get: operations["get_policy_api_policy_get"];
        /**
         * Put Policy
         * @description Change some toggles. Waits up to 2 seconds until every live engine has said from which step on it obeys.
         */
        put: operations["put_policy_api_policy_put"];
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/restore/api/policy/history": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get History
         * @description Who changed what and when, newest first, and where each engine began to obey.
         */
        get: operations["get_history_api_policy_history_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/restore/api/requests": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get Requests
         * @description Requests, newest first.
         */
        get: operations["get_requests_api_requests_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/restore/api/requests/{request_id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get Request
         * @description One request: where each block of its chain came from, what became of the block since, and its events.
         */
        get: operations["get_request_api_requests__request_id__get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/restore/api/summary": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get Summary
         * @description The totals from `since`, or the log's begin, to `until`, or now.
         */
        get: operations["get_summary_api_summary_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/restore/api/timeline": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get Timeline
         * @description Tokens by source, blocks by what happened to them, and policy changes, in buckets of equal length.
         *
         *     The last 15 minutes if no range is given. 2,000 points at most.
         */
        get: operations["get_timeline_api_timeline_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/restore/healthz": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get Health
         * @description `ok`, or `degraded` with the reason and status 503. Where the log lies is told only to those with the key.
         */
        get: operations["get_health_healthz_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
}
export type webhooks = Record<string, never>;
export interface components {
    schemas: {
        /**
         * AppliedPolicy
         * @description What one live engine last said about the policy it obeys.
         */
        AppliedPolicy: {
            applied: components["schemas"]["PolicyBody"] | null;
            /** Applied Step */
            applied_step: number | null;
            /**
             * Applied Version
             * @description None: the engine has not said anything yet
             */
            applied_version: number | null;
            /** Applied Wall Ns */
            applied_wall_ns: number | null;
            /** Dp Index */
            dp_index: number;
            /** Engine Id */
            engine_id: number;
            /**
             * Is Idle
             * @description No step was running when it answered; the next step obeys
             */
            is_idle: boolean;
            /**
             * Is Pending
             * @description The engine has not answered for the newest version yet; false where it cannot re-store
             */
            is_pending: boolean;
            /**
             * Reason
             * @description 'start', 'toggle', or 'fault': re-store was turned off by itself
             */
            reason: string | null;
            /**
             * Restore Support
             * @description 'yes', or why this engine cannot re-store: whatever it answers, it obeys nothing
             */
            restore_support: string;
        };
        /**
         * BlockMoment
         * @description Something that happened to the CPU copy of one block.
         */
        BlockMoment: {
            /** By Request Id */
            by_request_id: string | null;
            /**
             * Kind
             * @enum {string}
             */
            kind: "blocks_stored" | "blocks_restored" | "blocks_evicted" | "blocks_loaded" | "cache_reset";
            /** Kv Group */
            kv_group: number | null;
            /** Request Id */
            request_id: string | null;
            /** Seq */
            seq: number;
            /** Step */
            step: number;
            /** Wall Ns */
            wall_ns: number;
        };
        /**
         * ChainBlock
         * @description One block of a request's chain: where its KV came from at the lookup and what became of its CPU copy.
         */
        ChainBlock: {
            /** Hash */
            hash: string;
            /** History */
            history: components["schemas"]["BlockMoment"][];
            /** Index */
            index: number;
            /**
             * Is In Cpu Tier
             * @description As of `history_last_seq`; null where rows before `history_first_seq` may decide it
             */
            is_in_cpu_tier: boolean | null;
            /**
             * Num Moments
             * @description Moments of its history that were read; `history` has the newest of them
             */
            num_moments: number;
            /**
             * Source
             * @description missing: the first block that the lookup did not find; computed: what lies behind it; pending: no lookup was admitted yet
             * @enum {string}
             */
            source: "gpu" | "cpu" | "missing" | "computed" | "pending";
            /**
             * Why Missing
             * @description For a block not found: 'evicted at step 12 by the store of …', 'never stored', 'never seen'
             */
            why_missing: string | null;
        };
        /** Engine */
        Engine: {
            /** Block Bytes */
            block_bytes: number;
            /** Dp Index */
            dp_index: number;
            /** Engine Uid */
            engine_uid: string;
            /** Hash Block Size */
            hash_block_size: number;
            /** Heartbeat Wall Ns */
            heartbeat_wall_ns: number;
            /** Hostname */
            hostname: string;
            /** Id */
            id: number;
            /**
             * Is Live
             * @description Its last sign of life is a few seconds old at most
             */
            is_live: boolean;
            /** Kv Groups */
            kv_groups: {
                [key: string]: unknown;
            }[];
            /** Model */
            model: string;
            /** Num Cpu Blocks */
            num_cpu_blocks: number;
            /** Num Gpu Blocks */
            num_gpu_blocks: number;
            /** Pid */
            pid: number;
            /** Restore Support */
            restore_support: string;
            /** Restore Version */
            restore_version: string;
            /** Sqlite Version */
            sqlite_version: string;
            /** Started Wall Ns */
            started_wall_ns: number;
            /** Stopped Wall Ns */
            stopped_wall_ns: number | null;
            /** Vllm Version */
            vllm_version: string;
        };
        /** EventPage */
        EventPage: {
            /** Events */
            events: components["schemas"]["EventRow"][];
            /**
             * Last Seq
             * @description Pass as `after` for what comes next
             */
            last_seq: number;
        };
        /**
         * EventRow
         * @description One row of the log: the header, and in `data` the columns that its kind fills.
         */
        EventRow: {
            /** Data */
            data: {
                [key: string]: unknown;
            };
            /** Engine Id */
            engine_id: number;
            /** Kind */
            kind: string;
            /** Monotonic Ns */
            monotonic_ns: number;
            /** Request Id */
            request_id: string | null;
            /** Seq */
            seq: number;
            /** Step */
            step: number;
            /** Wall Ns */
            wall_ns: number;
        };
        /**
         * Gap
         * @description Sent on the stream in place of rows that a slow or late client missed; read them with `/events?after=`.
         */
        Gap: {
            /**
             * After Seq
             * @description The last row that the client has
             */
            after_seq: number;
            /**
             * Next Seq
             * @description The first row that follows on the stream
             */
            next_seq: number;
        };
        /** Health */
        Health: {
            /** Detail */
            detail: string | null;
            /** Last Seq */
            last_seq: number;
            /**
             * Log
             * @description Where it lies; empty for who asks without the key that is set
             */
            log: string;
            /** Num Live Engines */
            num_live_engines: number;
            /** Schema Revision */
            schema_revision: string;
            /**
             * Status
             * @enum {string}
             */
            status: "ok" | "degraded";
        };
        /**
         * PolicyBody
         * @description The toggles.
         */
        PolicyBody: {
            /** Enabled */
            enabled: boolean;
            /** Max Restore Blocks Per Step */
            max_restore_blocks_per_step: number;
            /**
             * Mode
             * @enum {string}
             */
            mode: "rescan" | "tracked";
        };
        /**
         * PolicyChange
         * @description A partial change. At least one key; unknown keys are refused.
         * @example {
         *       "enabled": false
         *     }
         * @example {
         *       "max_restore_blocks_per_step": 0,
         *       "mode": "rescan"
         *     }
         */
        PolicyChange: {
            /** Enabled */
            enabled?: boolean | null;
            /** Max Restore Blocks Per Step */
            max_restore_blocks_per_step?: number | null;
            /** Mode */
            mode?: ("rescan" | "tracked") | null;
        };
        /** PolicyHistoryEntry */
        PolicyHistoryEntry: {
            after: components["schemas"]["PolicyBody"];
            /** Applied */
            applied: components["schemas"]["AppliedPolicy"][];
            /** Author */
            author: string;
            before: components["schemas"]["PolicyBody"];
            /** Created Wall Ns */
            created_wall_ns: number;
            /** Version */
            version: number;
        };
        /** PolicyMarker */
        PolicyMarker: {
            /** Engine Id */
            engine_id: number;
            /**
             * Label
             * @description off, rescan or tracked
             */
            label: string;
            /** Policy Version */
            policy_version: number;
            /** Reason */
            reason: string;
            /** Step */
            step: number;
            /** Wall Ns */
            wall_ns: number;
        };
        /**
         * PolicyState
         * @description The newest policy and every live engine's answer to it.
         */
        PolicyState: {
            /** Author */
            author: string | null;
            /**
             * Can Change
             * @description False over a recorded log, where no engine listens
             */
            can_change: boolean;
            /** Created Wall Ns */
            created_wall_ns: number | null;
            /**
             * Detail
             * @description Which engines do not obey it yet, or cannot, in words; null where all do
             */
            detail: string | null;
            /** Engines */
            engines: components["schemas"]["AppliedPolicy"][];
            policy: components["schemas"]["PolicyBody"];
            /**
             * Version
             * @description 0 is the built-in default, before anyone changed it
             */
            version: number;
        };
        /**
         * Problem
         * @description Every error: one line that says what was wrong and what to do.
         * @example {
         *       "detail": "no request has the id 'abc'"
         *     }
         */
        Problem: {
            /** Detail */
            detail: string;
        };
        /** RequestDetail */
        RequestDetail: {
            /** Chain */
            chain: components["schemas"]["ChainBlock"][];
            /** Events */
            events: components["schemas"]["EventRow"][];
            /** Hash Block Size */
            hash_block_size: number;
            /**
             * History First Seq
             * @description The blocks' history is complete from this row on: of what is older, moments of a much used head are left out. Null: nothing is left out
             */
            history_first_seq: number | null;
            /**
             * History Last Seq
             * @description The log's last row when the blocks' history was read
             */
            history_last_seq: number;
            /**
             * Is Chain Complete
             * @description False: the log lost part of it (events were dropped)
             */
            is_chain_complete: boolean;
            request: components["schemas"]["RequestRow"];
        };
        /** RequestPage */
        RequestPage: {
            /**
             * Next Before
             * @description Pass as `before` for older ones; null at the end
             */
            next_before: number | null;
            /** Requests */
            requests: components["schemas"]["RequestRow"][];
        };
        /** RequestRow */
        RequestRow: {
            /** Computed Tokens */
            computed_tokens: number | null;
            /** Cpu Hit Tokens */
            cpu_hit_tokens: number | null;
            /** Cut Index */
            cut_index: number | null;
            /** Engine Id */
            engine_id: number;
            /** Finished Wall Ns */
            finished_wall_ns: number | null;
            /** Gpu Hit Tokens */
            gpu_hit_tokens: number | null;
            /** Missing Hash */
            missing_hash: string | null;
            /**
             * Num Blocks
             * @description Hashed blocks of its prompt, of hash_block_size tokens
             */
            num_blocks: number;
            /** Num Preemptions */
            num_preemptions: number;
            /** Output Tokens */
            output_tokens: number | null;
            /** Prompt Tokens */
            prompt_tokens: number;
            /** Request Id */
            request_id: string;
            /** Restored Blocks */
            restored_blocks: number;
            /**
             * Seq
             * @description Of its request_started row: the order of the table
             */
            seq: number;
            /** Session Id */
            session_id: string | null;
            /** Started Wall Ns */
            started_wall_ns: number;
            /**
             * State
             * @description waiting: not admitted yet; lost: its engine ended, or stopped writing, before the request did
             * @enum {string}
             */
            state: "waiting" | "running" | "preempted" | "finished" | "lost";
            /** Status */
            status: string | null;
            /** Ttft Ns */
            ttft_ns: number | null;
        };
        /** Summary */
        Summary: {
            cpu_tier: components["schemas"]["TierFill"] | null;
            /** Dropped Blocks */
            dropped_blocks: number;
            /** Evicted Blocks */
            evicted_blocks: number;
            /** Last Fault */
            last_fault: string | null;
            /** @description The minute before `until_wall_ns` */
            last_minute: components["schemas"]["TokenSplit"];
            /** Last Seq */
            last_seq: number;
            /** Loaded Blocks */
            loaded_blocks: number;
            /** Loaded Bytes */
            loaded_bytes: number;
            /** Num Events Dropped */
            num_events_dropped: number;
            /** Num Faults */
            num_faults: number;
            /** Num Requests */
            num_requests: number;
            /**
             * Num Running
             * @description Requests that live engines have not finished yet, whatever the range
             */
            num_running: number;
            /** Restored Blocks */
            restored_blocks: number;
            /** Restored Bytes */
            restored_bytes: number;
            /** Since Wall Ns */
            since_wall_ns: number | null;
            /** Stored Blocks */
            stored_blocks: number;
            /** Stored Bytes */
            stored_bytes: number;
            tokens: components["schemas"]["TokenSplit"];
            /** Ttft P50 Ns */
            ttft_p50_ns: number | null;
            /** Ttft P90 Ns */
            ttft_p90_ns: number | null;
            /** Until Wall Ns */
            until_wall_ns: number;
        };
        /**
         * TierFill
         * @description The CPU tier as the last step of each live engine left it, summed.
         */
        TierFill: {
            /** Block Bytes */
            block_bytes: number;
            /** Cached Blocks */
            cached_blocks: number;
            /**
             * Free Blocks
             * @description Hold nothing that can be found
             */
            free_blocks: number;
            /** In Flight Blocks */
            in_flight_blocks: number;
            /** Num Blocks */
            num_blocks: number;
            /** Restorable Blocks */
            restorable_blocks: number;
        };
        /** Timeline */
        Timeline: {
            /** Bucket Ns */
            bucket_ns: number;
            /** Points */
            points: components["schemas"]["TimelinePoint"][];
            /** Policy At Start */
            policy_at_start: string | null;
            /** Policy Markers */
            policy_markers: components["schemas"]["PolicyMarker"][];
            /** Since Wall Ns */
            since_wall_ns: number;
            /** Until Wall Ns */
            until_wall_ns: number;
        };
        /**
         * TimelinePoint
         * @description One bucket. Token fields are null where no request was admitted in it.
         */
        TimelinePoint: {
            /** Computed Tokens */
            computed_tokens: number | null;
            /** Cpu Blocks Cached */
            cpu_blocks_cached: number | null;
            /** Cpu Hit Tokens */
            cpu_hit_tokens: number | null;
            /**
             * Engine Up
             * @description False where no engine wrote anything: a gap, not a zero
             */
            engine_up: boolean;
            /** Evicted Blocks */
            evicted_blocks: number;
            /** Gpu Hit Tokens */
            gpu_hit_tokens: number | null;
            /** Hit Rate */
            hit_rate: number | null;
            /** Loaded Blocks */
            loaded_blocks: number;
            /** Prompt Tokens */
            prompt_tokens: number | null;
            /** Restored Blocks */
            restored_blocks: number;
            /**
             * Restored Hit Tokens
             * @description Of the CPU hits: there thanks to a re-store
             */
            restored_hit_tokens: number | null;
            /** Stored Blocks */
            stored_blocks: number;
            /**
             * Wall Ns
             * @description Start of the bucket
             */
            wall_ns: number;
        };
        /**
         * TokenSplit
         * @description Prompt tokens of admitted lookups, by where their KV came from. Lookups after a preemption do not count again.
         */
        TokenSplit: {
            /** Computed Tokens */
            computed_tokens: number;
            /** Cpu Hit Tokens */
            cpu_hit_tokens: number;
            /** Gpu Hit Tokens */
            gpu_hit_tokens: number;
            /**
             * Hit Rate
             * @description (GPU + CPU hits) / prompt tokens; null without traffic
             */
            hit_rate: number | null;
            /** Prompt Tokens */
            prompt_tokens: number;
            /**
             * Restored Hit Tokens
             * @description Of the CPU hits: tokens in blocks that are there thanks to a re-store
             */
            restored_hit_tokens: number;
        };
    };
    responses: never;
    parameters: never;
    requestBodies: never;
    headers: never;
    pathItems: never;
}
export type $defs = Record<string, never>;
export interface operations {
    get_engines_api_engines_get: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example [
                     *       {
                     *         "block_bytes": 1474560,
                     *         "dp_index": 0,
                     *         "engine_uid": "4f0c9d5e-0d7e-4f0e-9a53-0a41b0a6d3b1",
                     *         "hash_block_size": 32,
                     *         "heartbeat_wall_ns": 1790000000000000000,
                     *         "hostname": "gpu-box",
                     *         "id": 1,
                     *         "is_live": true,
                     *         "kv_groups": [
                     *           {
                     *             "block_size": 32,
                     *             "is_prefix_cacheable": true,
                     *             "kind": "full_attention"
                     *           }
                     *         ],
                     *         "model": "SmolLM2-135M-Instruct",
                     *         "num_cpu_blocks": 96,
                     *         "num_gpu_blocks": 128,
                     *         "pid": 4242,
                     *         "restore_support": "yes",
                     *         "restore_version": "0.1.0",
                     *         "sqlite_version": "3.46.1",
                     *         "started_wall_ns": 1789999280000000000,
                     *         "vllm_version": "0.32.0"
                     *       }
                     *     ]
                     */
                    "application/json": components["schemas"]["Engine"][];
                };
            };
            /** @description A key is set and was not given */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description A client, a host name or a page that may not do this */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description A parameter that is not as it should be */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description The log cannot be read now */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
        };
    };
    get_events_api_events_get: {
        parameters: {
            query?: {
                after?: number | null;
                before?: number | null;
                /** @description Only these kinds; may be given several times */
                kind?: ("request_started" | "lookup" | "blocks_stored" | "blocks_restored" | "blocks_evicted" | "blocks_loaded" | "blocks_dropped" | "cursor_moved" | "request_preempted" | "request_finished" | "policy_applied" | "events_dropped" | "fault" | "cache_reset")[] | null;
                /** @description Only this request's rows: an id or its start */
                request?: string | null;
                limit?: number;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "events": [
                     *         {
                     *           "data": {
                     *             "cpu_hit_tokens": 0,
                     *             "cut_index": 1,
                     *             "gpu_hit_tokens": 32,
                     *             "is_resumed": false,
                     *             "is_skipped": false,
                     *             "missing_hash": "c0ffee11aa22bb33c0ffee11aa22bb33c0ffee11aa22bb33c0ffee11aa22bb33",
                     *             "num_attempts": 1,
                     *             "num_blocks": 2,
                     *             "num_tokens": 65,
                     *             "tail_hash": "c0ffee11aa22bb33c0ffee11aa22bb33c0ffee11aa22bb33c0ffee11aa22bb33"
                     *           },
                     *           "engine_id": 1,
                     *           "kind": "lookup",
                     *           "monotonic_ns": 93000000000,
                     *           "request_id": "chatcmpl-7f3a5f0c9a7e4a51-0-8b7d12aa",
                     *           "seq": 4712,
                     *           "step": 18204,
                     *           "wall_ns": 1789999996100000000
                     *         }
                     *       ],
                     *       "last_seq": 4712
                     *     }
                     */
                    "application/json": components["schemas"]["EventPage"];
                };
            };
            /** @description A key is set and was not given */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description A client, a host name or a page that may not do this */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description A parameter that is not as it should be */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description The log cannot be read now */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
        };
    };
    stream_events_api_events_stream_get: {
        parameters: {
            query?: {
                /** @description Only these kinds; may be given several times */
                kind?: ("request_started" | "lookup" | "blocks_stored" | "blocks_restored" | "blocks_evicted" | "blocks_loaded" | "blocks_dropped" | "cursor_moved" | "request_preempted" | "request_finished" | "policy_applied" | "events_dropped" | "fault" | "cache_reset")[] | null;
                /** @description Only this request's rows: an id or its start */
                request?: string | null;
                after?: number | null;
            };
            header?: {
                /** @description The id of the last row that the client has */
                "last-event-id"?: string | null;
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description `event: log`: an EventRow, its seq as id; `event: gap`: a Gap; comments meanwhile */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/event-stream": unknown;
                };
            };
            /** @description A key is set and was not given */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description A client, a host name or a page that may not do this */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description A parameter that is not as it should be */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description The log cannot be read now */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
        };
    };
    get_policy_api_policy_get: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "author": "127.0.0.1 (curl/8.5.0)",
                     *       "can_change": true,
                     *       "created_wall_ns": 1790000000000000000,
                     *       "engines": [
                     *         {
                     *           "applied": {
                     *             "enabled": true,
                     *             "max_restore_blocks_per_step": 64,
                     *             "mode": "tracked"
                     *           },
                     *           "applied_step": 18204,
                     *           "applied_version": 7,
                     *           "applied_wall_ns": 1790000000031000000,
                     *           "dp_index": 0,
                     *           "engine_id": 1,
                     *           "is_idle": false,
                     *           "is_pending": false,
                     *           "reason": "toggle",
                     *           "restore_support": "yes"
                     *         }
                     *       ],
                     *       "policy": {
                     *         "enabled": true,
                     *         "max_restore_blocks_per_step": 64,
                     *         "mode": "tracked"
                     *       },
                     *       "version": 7
                     *     }
                     */
                    "application/json": components["schemas"]["PolicyState"];
                };
            };
            /** @description A key is set and was not given */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description A client, a host name or a page that may not do this */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description A parameter that is not as it should be */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description The log cannot be read now */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
        };
    };
    put_policy_api_policy_put: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["PolicyChange"];
            };
        };
        responses: {
            /** @description Every live engine obeys it */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "author": "127.0.0.1 (curl/8.5.0)",
                     *       "can_change": true,
                     *       "created_wall_ns": 1790000000000000000,
                     *       "engines": [
                     *         {
                     *           "applied": {
                     *             "enabled": true,
                     *             "max_restore_blocks_per_step": 64,
                     *             "mode": "tracked"
                     *           },
                     *           "applied_step": 18204,
                     *           "applied_version": 7,
                     *           "applied_wall_ns": 1790000000031000000,
                     *           "dp_index": 0,
                     *           "engine_id": 1,
                     *           "is_idle": false,
                     *           "is_pending": false,
                     *           "reason": "toggle",
                     *           "restore_support": "yes"
                     *         }
                     *       ],
                     *       "policy": {
                     *         "enabled": true,
                     *         "max_restore_blocks_per_step": 64,
                     *         "mode": "tracked"
                     *       },
                     *       "version": 7
                     *     }
                     */
                    "application/json": components["schemas"]["PolicyState"];
                };
            };
            /** @description Stored, but not every engine obeys it yet, or can */
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "author": "127.0.0.1 (curl/8.5.0)",
                     *       "can_change": true,
                     *       "created_wall_ns": 1790000000000000000,
                     *       "detail": "engine 1 has not answered yet; it obeys from its next step on",
                     *       "engines": [
                     *         {
                     *           "applied": {
                     *             "enabled": false,
                     *             "max_restore_blocks_per_step": 64,
                     *             "mode": "tracked"
                     *           },
                     *           "applied_step": 18204,
                     *           "applied_version": 6,
                     *           "applied_wall_ns": 1790000000031000000,
                     *           "dp_index": 0,
                     *           "engine_id": 1,
                     *           "is_idle": false,
                     *           "is_pending": true,
                     *           "reason": "toggle",
                     *           "restore_support": "yes"
                     *         }
                     *       ],
                     *       "policy": {
                     *         "enabled": true,
                     *         "max_restore_blocks_per_step": 64,
                     *         "mode": "tracked"
                     *       },
                     *       "version": 7
                     *     }
                     */
                    "application/json": components["schemas"]["PolicyState"];
                };
            };
            /** @description A body that is no text, or that no parser takes */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description A key is set and was not given */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description A client, a host name or a page that may not do this */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description A recorded log with no live engine */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description Not `application/json` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description An unknown key or a value out of bounds; nothing was applied */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description The log cannot be read now */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
        };
    };
    get_history_api_policy_history_get: {
        parameters: {
            query?: {
                limit?: number;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example [
                     *       {
                     *         "after": {
                     *           "enabled": true,
                     *           "max_restore_blocks_per_step": 64,
                     *           "mode": "tracked"
                     *         },
                     *         "applied": [
                     *           {
                     *             "applied": {
                     *               "enabled": true,
                     *               "max_restore_blocks_per_step": 64,
                     *               "mode": "tracked"
                     *             },
                     *             "applied_step": 18204,
                     *             "applied_version": 7,
                     *             "applied_wall_ns": 1790000000031000000,
                     *             "dp_index": 0,
                     *             "engine_id": 1,
                     *             "is_idle": false,
                     *             "is_pending": false,
                     *             "reason": "toggle",
                     *             "restore_support": "yes"
                     *           }
                     *         ],
                     *         "author": "127.0.0.1 (curl/8.5.0)",
                     *         "before": {
                     *           "enabled": false,
                     *           "max_restore_blocks_per_step": 64,
                     *           "mode": "tracked"
                     *         },
                     *         "created_wall_ns": 1790000000000000000,
                     *         "version": 7
                     *       }
                     *     ]
                     */
                    "application/json": components["schemas"]["PolicyHistoryEntry"][];
                };
            };
            /** @description A key is set and was not given */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description A client, a host name or a page that may not do this */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description A parameter that is not as it should be */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description The log cannot be read now */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
        };
    };
    get_requests_api_requests_get: {
        parameters: {
            query?: {
                limit?: number;
                /** @description `next_before` of the page before */
                before?: number | null;
                state?: ("waiting" | "running" | "preempted" | "finished" | "lost") | null;
                /** @description Part of a request's or a session's id */
                search?: string | null;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "requests": [
                     *         {
                     *           "computed_tokens": 33,
                     *           "cpu_hit_tokens": 0,
                     *           "cut_index": 1,
                     *           "engine_id": 1,
                     *           "finished_wall_ns": 1789999999000000000,
                     *           "gpu_hit_tokens": 32,
                     *           "missing_hash": "c0ffee11aa22bb33c0ffee11aa22bb33c0ffee11aa22bb33c0ffee11aa22bb33",
                     *           "num_blocks": 2,
                     *           "num_preemptions": 0,
                     *           "output_tokens": 24,
                     *           "prompt_tokens": 65,
                     *           "request_id": "chatcmpl-7f3a5f0c9a7e4a51-0-8b7d12aa",
                     *           "restored_blocks": 1,
                     *           "seq": 4711,
                     *           "started_wall_ns": 1789999996000000000,
                     *           "state": "finished",
                     *           "status": "FINISHED_STOPPED",
                     *           "ttft_ns": 310000000
                     *         }
                     *       ]
                     *     }
                     */
                    "application/json": components["schemas"]["RequestPage"];
                };
            };
            /** @description A key is set and was not given */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description A client, a host name or a page that may not do this */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description A parameter that is not as it should be */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description The log cannot be read now */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
        };
    };
    get_request_api_requests__request_id__get: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description An id, or the start of just one */
                request_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "chain": [
                     *         {
                     *           "hash": "5b9c1f0e6f4a7d215b9c1f0e6f4a7d215b9c1f0e6f4a7d215b9c1f0e6f4a7d21",
                     *           "history": [],
                     *           "index": 0,
                     *           "is_in_cpu_tier": false,
                     *           "num_moments": 0,
                     *           "source": "gpu"
                     *         },
                     *         {
                     *           "hash": "c0ffee11aa22bb33c0ffee11aa22bb33c0ffee11aa22bb33c0ffee11aa22bb33",
                     *           "history": [
                     *             {
                     *               "by_request_id": "chatcmpl-19bc",
                     *               "kind": "blocks_evicted",
                     *               "kv_group": 0,
                     *               "seq": 4600,
                     *               "step": 18190,
                     *               "wall_ns": 1789999994000000000
                     *             },
                     *             {
                     *               "kind": "blocks_stored",
                     *               "kv_group": 0,
                     *               "request_id": "chatcmpl-7f3a5f0c9a7e4a51-0-8b7d12aa",
                     *               "seq": 4720,
                     *               "step": 18206,
                     *               "wall_ns": 1789999996500000000
                     *             }
                     *           ],
                     *           "index": 1,
                     *           "is_in_cpu_tier": true,
                     *           "num_moments": 2,
                     *           "source": "missing",
                     *           "why_missing": "evicted at step 18190 by the store of chatcmpl-19bc"
                     *         }
                     *       ],
                     *       "events": [
                     *         {
                     *           "data": {
                     *             "cpu_hit_tokens": 0,
                     *             "cut_index": 1,
                     *             "gpu_hit_tokens": 32,
                     *             "is_resumed": false,
                     *             "is_skipped": false,
                     *             "missing_hash": "c0ffee11aa22bb33c0ffee11aa22bb33c0ffee11aa22bb33c0ffee11aa22bb33",
                     *             "num_attempts": 1,
                     *             "num_blocks": 2,
                     *             "num_tokens": 65,
                     *             "tail_hash": "c0ffee11aa22bb33c0ffee11aa22bb33c0ffee11aa22bb33c0ffee11aa22bb33"
                     *           },
                     *           "engine_id": 1,
                     *           "kind": "lookup",
                     *           "monotonic_ns": 93000000000,
                     *           "request_id": "chatcmpl-7f3a5f0c9a7e4a51-0-8b7d12aa",
                     *           "seq": 4712,
                     *           "step": 18204,
                     *           "wall_ns": 1789999996100000000
                     *         }
                     *       ],
                     *       "hash_block_size": 32,
                     *       "history_last_seq": 5120,
                     *       "is_chain_complete": true,
                     *       "request": {
                     *         "computed_tokens": 33,
                     *         "cpu_hit_tokens": 0,
                     *         "cut_index": 1,
                     *         "engine_id": 1,
                     *         "finished_wall_ns": 1789999999000000000,
                     *         "gpu_hit_tokens": 32,
                     *         "missing_hash": "c0ffee11aa22bb33c0ffee11aa22bb33c0ffee11aa22bb33c0ffee11aa22bb33",
                     *         "num_blocks": 2,
                     *         "num_preemptions": 0,
                     *         "output_tokens": 24,
                     *         "prompt_tokens": 65,
                     *         "request_id": "chatcmpl-7f3a5f0c9a7e4a51-0-8b7d12aa",
                     *         "restored_blocks": 1,
                     *         "seq": 4711,
                     *         "started_wall_ns": 1789999996000000000,
                     *         "state": "finished",
                     *         "status": "FINISHED_STOPPED",
                     *         "ttft_ns": 310000000
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["RequestDetail"];
                };
            };
            /** @description A key is set and was not given */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description A client, a host name or a page that may not do this */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description No such request, or several */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description A parameter that is not as it should be */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description The log cannot be read now */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
        };
    };
    get_summary_api_summary_get: {
        parameters: {
            query?: {
                /** @description Wall-clock nanoseconds since the epoch */
                since?: number | null;
                /** @description Wall-clock nanoseconds since the epoch */
                until?: number | null;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "cpu_tier": {
                     *         "block_bytes": 1474560,
                     *         "cached_blocks": 78,
                     *         "free_blocks": 16,
                     *         "in_flight_blocks": 2,
                     *         "num_blocks": 96,
                     *         "restorable_blocks": 3
                     *       },
                     *       "dropped_blocks": 4,
                     *       "evicted_blocks": 600,
                     *       "last_minute": {
                     *         "computed_tokens": 0,
                     *         "cpu_hit_tokens": 0,
                     *         "gpu_hit_tokens": 0,
                     *         "prompt_tokens": 0,
                     *         "restored_hit_tokens": 0
                     *       },
                     *       "last_seq": 5120,
                     *       "loaded_blocks": 120,
                     *       "loaded_bytes": 176947200,
                     *       "num_events_dropped": 0,
                     *       "num_faults": 0,
                     *       "num_requests": 48,
                     *       "num_running": 2,
                     *       "restored_blocks": 90,
                     *       "restored_bytes": 132710400,
                     *       "stored_blocks": 700,
                     *       "stored_bytes": 1032192000,
                     *       "tokens": {
                     *         "computed_tokens": 3800,
                     *         "cpu_hit_tokens": 3800,
                     *         "gpu_hit_tokens": 2400,
                     *         "hit_rate": 0.62,
                     *         "prompt_tokens": 10000,
                     *         "restored_hit_tokens": 960
                     *       },
                     *       "ttft_p50_ns": 310000000,
                     *       "ttft_p90_ns": 910000000,
                     *       "until_wall_ns": 1790000000000000000
                     *     }
                     */
                    "application/json": components["schemas"]["Summary"];
                };
            };
            /** @description A key is set and was not given */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description A client, a host name or a page that may not do this */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description An empty range */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description The log cannot be read now */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
        };
    };
    get_timeline_api_timeline_get: {
        parameters: {
            query?: {
                /** @description Wall-clock nanoseconds since the epoch */
                since?: number | null;
                /** @description Wall-clock nanoseconds since the epoch */
                until?: number | null;
                /** @description Seconds a point; chosen to fit the range if not given */
                bucket?: number | null;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "bucket_ns": 10000000000,
                     *       "points": [
                     *         {
                     *           "computed_tokens": 380,
                     *           "cpu_blocks_cached": 78,
                     *           "cpu_hit_tokens": 380,
                     *           "engine_up": true,
                     *           "evicted_blocks": 9,
                     *           "gpu_hit_tokens": 240,
                     *           "hit_rate": 0.62,
                     *           "loaded_blocks": 12,
                     *           "prompt_tokens": 1000,
                     *           "restored_blocks": 3,
                     *           "restored_hit_tokens": 96,
                     *           "stored_blocks": 12,
                     *           "wall_ns": 1789999990000000000
                     *         }
                     *       ],
                     *       "policy_at_start": "off",
                     *       "policy_markers": [
                     *         {
                     *           "engine_id": 1,
                     *           "label": "tracked",
                     *           "policy_version": 7,
                     *           "reason": "toggle",
                     *           "step": 18204,
                     *           "wall_ns": 1789999995000000000
                     *         }
                     *       ],
                     *       "since_wall_ns": 1789999990000000000,
                     *       "until_wall_ns": 1790000000000000000
                     *     }
                     */
                    "application/json": components["schemas"]["Timeline"];
                };
            };
            /** @description A key is set and was not given */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description A client, a host name or a page that may not do this */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description A range that cannot be drawn */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description The log cannot be read now */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
        };
    };
    get_health_healthz_get: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "last_seq": 5120,
                     *       "log": "/home/me/.local/share/vllm-restore/log.db",
                     *       "num_live_engines": 1,
                     *       "schema_revision": "20261130a",
                     *       "status": "ok"
                     *     }
                     */
                    "application/json": components["schemas"]["Health"];
                };
            };
            /** @description A key is set and was not given */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description A client, a host name or a page that may not do this */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description A parameter that is not as it should be */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description Degraded: `detail` says why */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "last_seq": 5120,
                     *       "log": "/home/me/.local/share/vllm-restore/log.db",
                     *       "num_live_engines": 1,
                     *       "schema_revision": "20261130a",
                     *       "status": "ok"
                     *     }
                     */
                    "application/json": components["schemas"]["Health"];
                };
            };
        };
    };
}
