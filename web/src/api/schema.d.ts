// Generated from the API's OpenAPI document by `npm run schema`. Do not edit.

export interface paths {
    "/restore/api/benefit": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get Benefit
         * @description What evictions cost and what re-store gained and spent, in all and by version of the policy. From the log's begin
         *     to now if no range is given.
         */
        get: operations["get_benefit_api_benefit_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/restore/api/causes": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get Causes
         * @description Why lookups ended where they did, and the tokens that it cost. The last 15 minutes if no range is given.
         */
        get: operations["get_causes_api_causes_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/restore/api/conversations": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get Conversations
         * @description Requests by conversation, the most recently active first, and the hit rate by turn.
         *
         *     A request goes on from another one if its prompt has all full blocks of that one's prompt and output, and that
         *     output filled at least one of them; or if both name the same session.
         */
        get: operations["get_conversations_api_conversations_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/restore/api/conversations/{conversation_id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get Conversation
         * @description One conversation, turn by turn: what each found, and where it lost its prefix.
         */
        get: operations["get_conversation_api_conversations__conversation_id__get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
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
    "/restore/api/export/{table}.{format}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get Export
         * @description One table of the log. A range applies to `steps` and `events`; of the other tables every row is given.
         */
        get: operations["get_export_api_export__table___format__get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/restore/api/glance": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get Glance
         * @description What is going on, in one sentence whose numbers lead to the views behind them. The last 15 minutes if no range is
         *     given.
         */
        get: operations["get_glance_api_glance_get"];
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
    "/restore/api/report": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get Report
         * @description One HTML file that explains the range and needs nothing else. From the log's begin to now if none is given.
         *
         *     What other sizes of the tier would have given comes from the shadows, once they have read the log; the command
         *     `vllm-restore report` plays them itself.
         */
        get: operations["get_report_api_report_get"];
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
    "/restore/api/retention": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get Retention
         * @description Which rule blocks of the CPU tier go by, why, and what `adaptive` has learned, chosen and refused since it came
         *     in force. `limit` is of `switches`.
         */
        get: operations["get_retention_api_retention_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/restore/api/shadows": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get Shadows
         * @description What tiers of metadata, which follow the newest engine's traffic, would have given. The last 15 minutes if no
         *     range is given. They begin to follow when they are first asked for: see `is_caught_up`.
         */
        get: operations["get_shadows_api_shadows_get"];
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
    "/restore/api/tier": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get Tier
         * @description Every CPU block of an engine as of a row of the log, and how old blocks get before they are evicted.
         *
         *     `since` and `until` are the range of eviction ages and churn: from the engine's start to the row if not given.
         */
        get: operations["get_tier_api_tier_get"];
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
         *     The last 15 minutes if no range is given. 2,000 points at most. Buckets of a second and more are whole seconds.
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
    "/restore/api/whatif": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get Whatif
         * @description Play the whole log of one engine under other policies and sizes: some seconds a hundred thousand rows.
         */
        get: operations["get_whatif_api_whatif_get"];
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
         * Assumption
         * @description A figure that people quote, next to the same quantity measured here.
         */
        Assumption: {
            /** Label */
            label: string;
            /** Measured */
            measured: number | null;
            /**
             * Name
             * @enum {string}
             */
            name: "restore_seconds" | "restore_bytes" | "prefill_seconds" | "ratio";
            /** Quoted */
            quoted: number;
            /**
             * Unit
             * @enum {string}
             */
            unit: "s" | "B" | "×";
        };
        /**
         * Benefit
         * @description Re-store's account over some lookups. Prices are the whole range's, `total.prefill` and what a copied block took
         *     on average where it was not measured, so that versions of the policy add up to the total.
         */
        Benefit: {
            /**
             * Displaced S
             * @description At most: prefill of the displaced blocks that were wanted again; null where speed is not measured
             */
            displaced_s: number | null;
            /** Hit Rate */
            hit_rate: number | null;
            /** Num Lookups */
            num_lookups: number;
            /** @description Over the steps of this part alone */
            prefill: components["schemas"]["Prefill"];
            /** Prompt Tokens */
            prompt_tokens: number;
            regret: components["schemas"]["Regret"];
            restore: components["schemas"]["RestoreCost"];
            /**
             * Roi
             * @description saved_s / spent_s
             */
            roi: number | null;
            /**
             * Saved S
             * @description Prefill that re-stored hits spared; null where speed is not measured
             */
            saved_s: number | null;
            /**
             * Spent S
             * @description Copying again; what was not measured, at the average of what was; null where nothing was
             */
            spent_s: number | null;
        };
        /** BenefitView */
        BenefitView: {
            /**
             * Assumptions
             * @description Measured time and bytes are per 256 tokens, as the quoted ones
             */
            assumptions: components["schemas"]["Assumption"][];
            /**
             * Block Tokens
             * @description Tokens of a block that measured figures are of; null: no engine
             */
            block_tokens: number | null;
            /**
             * Hits Per Restore
             * @description How often a re-stored block was hit: the quoted ratio pays only so often
             */
            hits_per_restore: number | null;
            /**
             * Holds
             * @description Re-store gained at least the quoted 50×; null: not measured, or there is a `total.prefill.doubt`
             */
            holds: boolean | null;
            /**
             * Policies
             * @description In the order in which they were obeyed first
             */
            policies: components["schemas"]["PolicyBenefit"][];
            /** Since Wall Ns */
            since_wall_ns: number;
            total: components["schemas"]["Benefit"];
            /** Until Wall Ns */
            until_wall_ns: number;
            /**
             * Verdict
             * @description Whether the assumption holds here, in words
             */
            verdict: string;
        };
        /**
         * Bin
         * @description One bar of a histogram over time.
         */
        Bin: {
            /** From Ns */
            from_ns: number;
            /** Num Blocks */
            num_blocks: number;
            /**
             * To Ns
             * @description Not in it; null: no bound
             */
            to_ns: number | null;
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
         * CauseExample
         * @description A lookup that lost much for one cause.
         */
        CauseExample: {
            /** Behind Tokens */
            behind_tokens: number;
            /** By Request Id */
            by_request_id: string | null;
            /** Cause */
            cause: string;
            /** Cut Index */
            cut_index: number | null;
            /** Detail */
            detail: string | null;
            /** Engine Id */
            engine_id: number;
            /** Lost Tokens */
            lost_tokens: number;
            /** Missing Hash */
            missing_hash: string | null;
            /** Prompt Tokens */
            prompt_tokens: number;
            /** Request Id */
            request_id: string;
            /** Seq */
            seq: number;
            /**
             * Since Ns
             * @description From the eviction to the lookup
             */
            since_ns: number | null;
            /** Wall Ns */
            wall_ns: number;
        };
        /**
         * CauseRow
         * @description Lookups that ended for one reason. Those after a preemption do not count.
         */
        CauseRow: {
            /**
             * Behind Tokens
             * @description Of the lost: lay in a tier behind the cut
             */
            behind_tokens: number;
            /**
             * Cause
             * @description never_seen, never_stored, evicted, in_flight, shorter_than_a_block, last_token_rule, not_aligned, cache_skipped, reset; `not_recorded` in rows of an older schema; null where nothing was left to find
             */
            cause: string | null;
            /** Detail */
            detail: string | null;
            /**
             * Lost Share
             * @description Lost tokens / all prompt tokens of the range; null without traffic
             */
            lost_share: number | null;
            /**
             * Lost Tokens
             * @description Computed though computed before
             */
            lost_tokens: number;
            /** Num Lookups */
            num_lookups: number;
            /**
             * Prompt Tokens
             * @description Of these lookups
             */
            prompt_tokens: number;
        };
        /** Causes */
        Causes: {
            /** Behind Tokens */
            behind_tokens: number;
            /** Bucket Ns */
            bucket_ns: number;
            /**
             * Causes
             * @description The most lost tokens first
             */
            causes: components["schemas"]["CauseRow"][];
            /** Cpu Hit Tokens */
            cpu_hit_tokens: number;
            directory: components["schemas"]["Directory"] | null;
            /**
             * Examples
             * @description Up to five of each cause and detail, out of the seconds that lost the most for it
             */
            examples: components["schemas"]["CauseExample"][];
            /** Gpu Hit Tokens */
            gpu_hit_tokens: number;
            /** Lost Tokens */
            lost_tokens: number;
            /** Num Lookups */
            num_lookups: number;
            /** Points */
            points: components["schemas"]["CausesPoint"][];
            /** Prompt Tokens */
            prompt_tokens: number;
            /** Since Wall Ns */
            since_wall_ns: number;
            /** Until Wall Ns */
            until_wall_ns: number;
        };
        /**
         * CausesPoint
         * @description One bucket of the timeline.
         */
        CausesPoint: {
            /**
             * Lost Tokens
             * @description By cause; causes that lost nothing are left out
             */
            lost_tokens: {
                [key: string]: number;
            };
            /**
             * Prompt Tokens
             * @description Null where no request was admitted
             */
            prompt_tokens: number | null;
            /**
             * Wall Ns
             * @description Start of the bucket
             */
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
        /** ConversationDetail */
        ConversationDetail: {
            conversation: components["schemas"]["ConversationRow"];
            /** Hash Block Size */
            hash_block_size: number;
            /**
             * Turns
             * @description In the order in which they began
             */
            turns: components["schemas"]["Turn"][];
        };
        /** ConversationPage */
        ConversationPage: {
            /**
             * By Turn
             * @description Of all that are known, not of this page
             */
            by_turn: components["schemas"]["TurnRate"][];
            /**
             * Conversations
             * @description The most recently active first
             */
            conversations: components["schemas"]["ConversationRow"][];
            /**
             * First Seq
             * @description Requests before this row are not looked at, since there are too many; null: all are
             */
            first_seq: number | null;
            /**
             * Next Before
             * @description Pass as `before` for older ones; null at the end
             */
            next_before: number | null;
            /**
             * Num Conversations
             * @description That are known in all
             */
            num_conversations: number;
        };
        /** ConversationRow */
        ConversationRow: {
            /** Cpu Hit Tokens */
            cpu_hit_tokens: number;
            /** Engine Id */
            engine_id: number;
            /** First Wall Ns */
            first_wall_ns: number;
            /** Gpu Hit Tokens */
            gpu_hit_tokens: number;
            /** Hit Rate */
            hit_rate: number | null;
            /**
             * Id
             * @description The id of its first request
             */
            id: string;
            /**
             * Last Seq
             * @description Of its newest turn's request_started row: the order of the list
             */
            last_seq: number;
            /**
             * Last Wall Ns
             * @description When its newest turn began
             */
            last_wall_ns: number;
            /** Lost Tokens */
            lost_tokens: number;
            /**
             * Num Lost Prefixes
             * @description Turns whose lookup was cut inside what an earlier turn had computed
             */
            num_lost_prefixes: number;
            /** Num Turns */
            num_turns: number;
            /** Prompt Tokens */
            prompt_tokens: number;
            /** Restored Hit Tokens */
            restored_hit_tokens: number;
            /**
             * Session Id
             * @description Where the client named one
             */
            session_id: string | null;
        };
        /**
         * CurveRow
         * @description The hit rate of one policy at one size.
         */
        CurveRow: {
            /**
             * Cpu Blocks
             * @description Null: no bound
             */
            cpu_blocks: number | null;
            /** Cpu Bytes */
            cpu_bytes: number | null;
            /** Hit Rate */
            hit_rate: number | null;
            /** Policy */
            policy: string;
        };
        /**
         * Cut
         * @description Where the first lookup ended, why, and what that cost.
         */
        Cut: {
            /**
             * Age Ns
             * @description From its store to its eviction
             */
            age_ns: number | null;
            /**
             * Behind Tokens
             * @description Of these: lay in a tier behind the cut, of no use there
             */
            behind_tokens: number | null;
            /**
             * By Request Id
             * @description Whose store evicted it; or who went on with the sibling
             */
            by_request_id: string | null;
            /**
             * Cause
             * @description One of the closed list of causes; null where nothing was left to find
             */
            cause: string | null;
            /** Cause Detail */
            cause_detail: string | null;
            /** Evicted Step */
            evicted_step: number | null;
            /**
             * Index
             * @description First block index that no tier gave; null where the whole prompt was found
             */
            index: number | null;
            /**
             * Lost Tokens
             * @description Computed now though computed before; null in an older schema's rows
             */
            lost_tokens: number | null;
            /** Missing Hash */
            missing_hash: string | null;
            /**
             * Sibling Hash
             * @description Where the prompt departs: what followed the same prefix the last time
             */
            sibling_hash: string | null;
            /**
             * Since Ns
             * @description From the eviction to the lookup
             */
            since_ns: number | null;
            /**
             * Was Owned
             * @description A running request had it then, so that a re-store could have kept it
             */
            was_owned: boolean | null;
        };
        /**
         * Directory
         * @description What the newest engine of the range remembers of hashes that were seen: it bounds what a cause can know.
         */
        Directory: {
            /** Capacity */
            capacity: number | null;
            /** Engine Id */
            engine_id: number;
            /**
             * Num Forgotten
             * @description So far; a hash that was forgotten looks as if it was never seen
             */
            num_forgotten: number | null;
        };
        /** Engine */
        Engine: {
            /** Block Bytes */
            block_bytes: number;
            /**
             * Directory Capacity
             * @description Hashes that the engine remembers to have seen, for the causes; null in an older log
             */
            directory_capacity: number | null;
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
             * @description Pass as `after` for what comes next. Smaller than the `after` that was given: that number is of another log, and this one's rows begin at `after=0`
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
             * Is Other Log
             * @description True: `after_seq` is beyond the log's end, so the client's rows are of another log: it forgets them, and reads this one with `/events?after=0`
             */
            is_other_log: boolean;
            /**
             * Next Seq
             * @description The first row that follows on the stream
             */
            next_seq: number;
        };
        /**
         * Glance
         * @description What is going on, in one sentence.
         */
        Glance: {
            /**
             * Double Tier
             * @description Hit rate of a tier twice as large; null until its shadow knows
             */
            double_tier: number | null;
            /** From Cache */
            from_cache: number | null;
            /**
             * Lost To Eviction
             * @description Lost at lookups that were cut at an evicted block
             */
            lost_to_eviction: number | null;
            /**
             * Numbers
             * @description In the order of the sentence
             */
            numbers: components["schemas"]["GlanceNumber"][];
            /** Prompt Tokens */
            prompt_tokens: number;
            /**
             * Restore Would Have Saved
             * @description Of these, as a share of all prompt tokens: a running request owned the block when it went
             */
            restore_would_have_saved: number | null;
            /** Sentence */
            sentence: string;
            /** Since Wall Ns */
            since_wall_ns: number;
            /** Until Wall Ns */
            until_wall_ns: number;
        };
        /**
         * GlanceNumber
         * @description One number of the sentence and the view that proves it.
         */
        GlanceNumber: {
            /**
             * Name
             * @enum {string}
             */
            name: "from_cache" | "lost_to_eviction" | "restore_would_have_saved" | "double_tier";
            /**
             * Query
             * @description That view's parameters
             */
            query: {
                [key: string]: string;
            };
            /**
             * Share
             * @description Of prompt tokens, 0 to 1; null: no traffic, or not known
             */
            share: number | null;
            /**
             * View
             * @description The dashboard's view that it comes from
             */
            view: string;
        };
        /** Health */
        Health: {
            /** Detail */
            detail: string | null;
            /**
             * Is Recorded
             * @description Served alone, over a log, without vLLM: there is no /v1 here
             */
            is_recorded: boolean;
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
         * LaneRow
         * @description One moment that changed something on this chain, and how all of it stood afterwards.
         */
        LaneRow: {
            /**
             * By Request Id
             * @description Of an eviction: whose store took their place
             */
            by_request_id: string | null;
            /**
             * First Index
             * @description The first block of the chain that it touched
             */
            first_index: number;
            /** Kind */
            kind: string;
            /** Kv Group */
            kv_group: number | null;
            /**
             * Num Blocks
             * @description How many, from there
             */
            num_blocks: number;
            /**
             * Request Id
             * @description Who did it, or whose blocks they were
             */
            request_id: string | null;
            /** Seq */
            seq: number;
            /** Spans */
            spans: components["schemas"]["LaneSpan"][];
            /** Step */
            step: number;
            /** Wall Ns */
            wall_ns: number;
        };
        /**
         * LaneSpan
         * @description Neighbours of equal state. Spans cover the chain from its first block on, head first.
         */
        LaneSpan: {
            /** Num Blocks */
            num_blocks: number;
            /**
             * State
             * @description absent: no CPU copy; cached, restored: its CPU copy, by what made it; in the row of the lookup: gpu_hit, cpu_hit, restored_hit (in the CPU tier thanks to a re-store), missing (the cut), behind (usable, but behind the cut), computed
             * @enum {string}
             */
            state: "absent" | "cached" | "restored" | "gpu_hit" | "cpu_hit" | "restored_hit" | "missing" | "behind" | "computed";
        };
        /**
         * MissedRun
         * @description Blocks that the lookup wanted and that the CPU tier had evicted together.
         */
        MissedRun: {
            /**
             * By Request Id
             * @description Whose store took their place
             */
            by_request_id: string | null;
            /** Evicted Step */
            evicted_step: number;
            /**
             * First Index
             * @description In blocks of that group
             */
            first_index: number;
            /** Head Hash */
            head_hash: string;
            /**
             * Is By Restore
             * @description That store was a re-store
             */
            is_by_restore: boolean;
            /** Kv Group */
            kv_group: number;
            /** Num Blocks */
            num_blocks: number;
            /**
             * Num Owned
             * @description How many a running request owned when they were evicted
             */
            num_owned: number;
            /** Seq */
            seq: number;
            /**
             * Since Ns
             * @description From the eviction to the lookup
             */
            since_ns: number;
            /** Tail Hash */
            tail_hash: string;
        };
        /**
         * PolicyBenefit
         * @description The account of one version of the policy, over all engines that obeyed it.
         */
        PolicyBenefit: {
            /**
             * Displaced S
             * @description At most: prefill of the displaced blocks that were wanted again; null where speed is not measured
             */
            displaced_s: number | null;
            /** First Wall Ns */
            first_wall_ns: number;
            /** Hit Rate */
            hit_rate: number | null;
            /**
             * Label
             * @description off, rescan or tracked; adaptive or adaptive-off
             */
            label: string | null;
            /** Last Wall Ns */
            last_wall_ns: number;
            /** Num Lookups */
            num_lookups: number;
            /**
             * Policy Version
             * @description Null: before the engine said which policy it obeys
             */
            policy_version: number | null;
            /** @description Over the steps of this part alone */
            prefill: components["schemas"]["Prefill"];
            /** Prompt Tokens */
            prompt_tokens: number;
            regret: components["schemas"]["Regret"];
            restore: components["schemas"]["RestoreCost"];
            /**
             * Roi
             * @description saved_s / spent_s
             */
            roi: number | null;
            /**
             * Saved S
             * @description Prefill that re-stored hits spared; null where speed is not measured
             */
            saved_s: number | null;
            /**
             * Spent S
             * @description Copying again; what was not measured, at the average of what was; null where nothing was
             */
            spent_s: number | null;
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
            /**
             * Retention
             * @enum {string}
             */
            retention: "lru" | "adaptive";
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
            /** Retention */
            retention?: ("lru" | "adaptive") | null;
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
             * @description off, rescan or tracked; adaptive or adaptive-off
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
         * Prefill
         * @description Measured prefill speed: the least-squares slope of a step's time over the tokens that it scheduled, from the
         *     steps that did prefill (more tokens than running requests).
         */
        Prefill: {
            /**
             * Doubt
             * @description Why nothing should be concluded from this speed, in words: there is none, or R² is below 0.5
             */
            doubt: string | null;
            /** Num Steps */
            num_steps: number;
            /** R Squared */
            r_squared: number | null;
            /**
             * Seconds Per Token
             * @description Null: too few steps, or a slope that is not positive
             */
            seconds_per_token: number | null;
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
        /**
         * Regret
         * @description Blocks that the CPU tier evicted and that a lookup wanted again.
         */
        Regret: {
            /** Evicted Blocks */
            evicted_blocks: number;
            /**
             * Histogram
             * @description By the time from the eviction to the lookup that wanted it
             */
            histogram: components["schemas"]["Bin"][];
            /**
             * Lost Tokens
             * @description Of lookups that were cut at an evicted block
             */
            lost_tokens: number;
            /**
             * Wanted Blocks
             * @description A block counts each time that a lookup wants it
             */
            wanted_blocks: number;
            /**
             * Wanted Owned Blocks
             * @description Of these: a running request owned them when they were evicted
             */
            wanted_owned_blocks: number;
            /**
             * Wanted Share
             * @description Wanted / evicted; null where nothing was evicted
             */
            wanted_share: number | null;
        };
        /** RequestDetail */
        RequestDetail: {
            /** Chain */
            chain: components["schemas"]["ChainBlock"][];
            /** Conversation Id */
            conversation_id: string | null;
            /** @description Null before the first lookup */
            cut: components["schemas"]["Cut"] | null;
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
            /**
             * Is Lane Complete
             * @description False: rows are left out
             */
            is_lane_complete: boolean;
            /**
             * Lane
             * @description In the log's order, at most 500: those around the lookup; the newest before there was one
             */
            lane: components["schemas"]["LaneRow"][];
            /** Missed */
            missed: components["schemas"]["MissedRun"][];
            request: components["schemas"]["RequestRow"];
            /**
             * Saved Prefill S
             * @description What computing them would have taken at this engine's measured prefill speed; null where that is not known well enough
             */
            saved_prefill_s: number | null;
            /**
             * Saved Tokens
             * @description Prompt tokens that the caches gave; null before the first lookup
             */
            saved_tokens: number | null;
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
            /**
             * Behind Tokens
             * @description Of the lost tokens: what still lay in a tier behind the cut
             */
            behind_tokens: number | null;
            /**
             * By Request Id
             * @description Whose store evicted the missing block; where the prompt departs: who went on otherwise
             */
            by_request_id: string | null;
            /**
             * Cause
             * @description Why its lookup ended there; null where nothing was left to find
             */
            cause: string | null;
            /** Cause Detail */
            cause_detail: string | null;
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
            /**
             * Lost Tokens
             * @description Computed now though computed before: what a chain kept whole would have given. Null: not recorded
             */
            lost_tokens: number | null;
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
             * Restored Hit Tokens
             * @description Of the CPU hits: there thanks to a re-store
             */
            restored_hit_tokens: number | null;
            /**
             * Seq
             * @description Of its request_started row: the order of the table
             */
            seq: number;
            /** Session Id */
            session_id: string | null;
            /**
             * Since Ns
             * @description How long before the lookup the missing block had been evicted
             */
            since_ns: number | null;
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
        /**
         * RestoreCost
         * @description What was copied again, what it gave, and what it pushed out.
         */
        RestoreCost: {
            /**
             * Copy Ns
             * @description As the worker measured it; null where it does not measure or nothing was
             */
            copy_ns: number | null;
            /**
             * Displaced Blocks
             * @description Evicted to make place for a re-store
             */
            displaced_blocks: number;
            /**
             * Displaced Wanted Blocks
             * @description Of the displaced: wanted again by a lookup; each time counts
             */
            displaced_wanted_blocks: number;
            /**
             * Hit Tokens
             * @description Prompt tokens found thanks to a re-store
             */
            hit_tokens: number;
            /**
             * Loaded Blocks
             * @description Re-stored blocks that were hit later; each hit counts
             */
            loaded_blocks: number;
            /**
             * Measured Blocks
             * @description How many of the re-stored blocks `copy_ns` is of
             */
            measured_blocks: number;
            /** Restored Blocks */
            restored_blocks: number;
            /** Restored Bytes */
            restored_bytes: number;
        };
        /**
         * RetentionState
         * @description What the engine said last. It speaks at most every few seconds, and only where a request came since.
         */
        RetentionState: {
            /**
             * Asked Blocks
             * @description Of how many blocks; earlier requests count less and less
             */
            asked_blocks: number;
            /** Classes */
            classes: components["schemas"]["ReuseClass"][];
            /**
             * Edges S
             * @description Where each stretch of idle time starts; the last one has no end
             */
            edges_s: number[];
            /** Guard Lead */
            guard_lead: number;
            /**
             * Horizon S
             * @description Worth is the expected value of exp(-t / horizon), t the time to its return
             */
            horizon_s: number;
            /**
             * Is Guard On
             * @description The shadow by last use leads by more than `guard_lead`
             */
            is_guard_on: boolean;
            /**
             * Lru Hit Rate
             * @description What the shadow that goes by last use found of what was asked for of late; null before any request
             */
            lru_hit_rate: number | null;
            /**
             * Num Reuses
             * @description Chains that came back, in all
             */
            num_reuses: number;
            /**
             * Num To Learn
             * @description So many have to come back before blocks go by worth
             */
            num_to_learn: number;
            /**
             * Rule
             * @description What blocks go by: `lru`, the last use, or `worth`, what was learned
             * @enum {string}
             */
            rule: "lru" | "worth";
            /** Step */
            step: number;
            /** Wall Ns */
            wall_ns: number;
            /**
             * Worth Hit Rate
             * @description What the shadow that goes by worth found
             */
            worth_hit_rate: number | null;
        };
        /** RetentionView */
        RetentionView: {
            /** Engine Id */
            engine_id: number;
            /**
             * Evicted Blocks
             * @description Blocks that left the tier, whatever they went by
             */
            evicted_blocks: number | null;
            /**
             * Evicted By Worth Blocks
             * @description Of these, chosen by worth
             */
            evicted_by_worth_blocks: number | null;
            /**
             * Num Refusals
             * @description How often a request's blocks began to be refused
             */
            num_refusals: number | null;
            /**
             * Num Switches
             * @description All of them; as the counts below null where it is not in force
             */
            num_switches: number | null;
            /**
             * Retention
             * @description What the engine said that it obeys; null if it said nothing yet
             */
            retention: ("lru" | "adaptive") | null;
            /**
             * Rule
             * @description What the tier goes by now, by the newer of `state` and `switches`; null where it is not in force, or has said nothing yet
             */
            rule: ("lru" | "worth") | null;
            /**
             * Rule Since Wall Ns
             * @description Since when it goes by it; null where `adaptive` is not in force
             */
            rule_since_wall_ns: number | null;
            /**
             * Since Wall Ns
             * @description When `adaptive` came in force; null where it is not
             */
            since_wall_ns: number | null;
            /** @description Under `adaptive`: null until it has said something, and for a model that it does not suit, as the server's log says. Else the last one of a time when it was in force */
            state: components["schemas"]["RetentionState"] | null;
            /**
             * Switches
             * @description Newest first, at most `limit`, since `adaptive` came in force
             */
            switches: components["schemas"]["RuleSwitch"][];
        };
        /**
         * ReuseClass
         * @description What is known of chains that were asked for so often.
         */
        ReuseClass: {
            /**
             * Returns
             * @description How many of them came back; earlier ones count less and less
             */
            returns: number;
            /**
             * Turns
             * @description How often requests came for a chain of this class; the greatest number is this often or more, 0 is what a turn left behind that went on otherwise, null are heads that prompts share
             */
            turns: number | null;
            /**
             * Worth
             * @description What keeping one is worth, from 0 to 1, by how long nobody has asked for it: one number for each of the state's `edges_s`
             */
            worth: number[];
        };
        /**
         * RuleSwitch
         * @description The tier went by another rule from this row of the log on. Hit rates as of `RetentionState`, at that time.
         */
        RuleSwitch: {
            /** Asked Blocks */
            asked_blocks: number;
            /**
             * From Rule
             * @enum {string}
             */
            from_rule: "lru" | "worth";
            /** Lru Hit Rate */
            lru_hit_rate: number | null;
            /** Num Reuses */
            num_reuses: number;
            /**
             * Reason
             * @description Enough chains came back; the shadow by last use leads, or does no longer; the tier was emptied, with which the guard begins anew
             * @enum {string}
             */
            reason: "learned" | "guard_on" | "guard_off" | "reset";
            /** Seq */
            seq: number;
            /** Step */
            step: number;
            /**
             * To Rule
             * @enum {string}
             */
            to_rule: "lru" | "worth";
            /** Wall Ns */
            wall_ns: number;
            /** Worth Hit Rate */
            worth_hit_rate: number | null;
        };
        /**
         * Shadow
         * @description One that follows a live engine.
         */
        Shadow: {
            /**
             * Cpu Blocks
             * @description Null: no bound
             */
            cpu_blocks: number | null;
            /** Cpu Bytes */
            cpu_bytes: number | null;
            /** Cpu Hit Tokens */
            cpu_hit_tokens: number;
            /** Gpu Hit Tokens */
            gpu_hit_tokens: number;
            /** Hit Rate */
            hit_rate: number | null;
            /** Name */
            name: string;
            /** Points */
            points: components["schemas"]["ShadowPoint"][];
            /** Policy */
            policy: string;
            /** Restored Blocks */
            restored_blocks: number;
            /** Stored Blocks */
            stored_blocks: number;
        };
        /**
         * ShadowError
         * @description How far the shadow of the policy that was obeyed is from what the engine said.
         */
        ShadowError: {
            /** Name */
            name: string;
            /**
             * Percentage Points
             * @description Over the range: shadow minus truth
             */
            percentage_points: number | null;
            /**
             * Worst Percentage Points
             * @description In the worst point of the timeline, its size
             */
            worst_percentage_points: number | null;
        };
        /** ShadowPoint */
        ShadowPoint: {
            /**
             * Hit Rate
             * @description 0 to 1; null without traffic
             */
            hit_rate: number | null;
            /** Wall Ns */
            wall_ns: number;
        };
        /** Shadows */
        Shadows: {
            /** Curve */
            curve: components["schemas"]["CurveRow"][];
            /** Engine Id */
            engine_id: number | null;
            error: components["schemas"]["ShadowError"] | null;
            /**
             * Hit Rate
             * @description What the engine itself found
             */
            hit_rate: number | null;
            /** Is Caught Up */
            is_caught_up: boolean;
            /** Last Seq */
            last_seq: number;
            /**
             * Notes
             * @description Where a shadow must differ from what would have happened
             */
            notes: string[];
            /** Shadows */
            shadows: components["schemas"]["Shadow"][];
            /**
             * Unsupported
             * @description Why there can be none, in words
             */
            unsupported: string | null;
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
        /** Tier */
        Tier: {
            /** Block Bytes */
            block_bytes: number;
            /**
             * Blocks
             * @description By id, `limit` of them from `first_id` on
             */
            blocks: components["schemas"]["TierBlock"][];
            /**
             * Churn
             * @description Unhit / evicted; null where nothing was evicted
             */
            churn: number | null;
            /** Engine Id */
            engine_id: number;
            /** Evicted Blocks */
            evicted_blocks: number;
            /**
             * Evicted Unhit Blocks
             * @description Evicted without a hit since they were stored
             */
            evicted_unhit_blocks: number;
            /**
             * Eviction Age
             * @description Evicted blocks by the time since they were stored
             */
            eviction_age: components["schemas"]["Bin"][];
            /**
             * Is Complete
             * @description False: the log says too little, or too far back, about some blocks
             */
            is_complete: boolean;
            /**
             * Is Order Approximate
             * @description The order is worked out from completed copies and loads. It is approximate where loads were under way, a copy failed, or rows are missing
             */
            is_order_approximate: boolean;
            /** Num Blocks */
            num_blocks: number;
            /**
             * Seq
             * @description The state after this row
             */
            seq: number;
            /**
             * Since Wall Ns
             * @description The range of the figures below
             */
            since_wall_ns: number;
            /**
             * States
             * @description Blocks by state
             */
            states: {
                [key: string]: number;
            };
            /** Until Wall Ns */
            until_wall_ns: number;
            /**
             * Wall Ns
             * @description The time of that row
             */
            wall_ns: number;
        };
        /**
         * TierBlock
         * @description One CPU block. Fields are null where the block holds nothing, or where the log does not say.
         */
        TierBlock: {
            /**
             * Age Ns
             * @description Since it was stored, at the time of the view
             */
            age_ns: number | null;
            /**
             * Conversation Id
             * @description The conversation of who stored it
             */
            conversation_id: string | null;
            /**
             * Eviction Rank
             * @description 0 goes first; null where it is not among those that can go
             */
            eviction_rank: number | null;
            /** Hash */
            hash: string | null;
            /** Id */
            id: number;
            /**
             * Index
             * @description Its index in its chain, in blocks of its group
             */
            index: number | null;
            /**
             * Is Restored
             * @description What lies there is a re-store
             */
            is_restored: boolean | null;
            /** Kv Group */
            kv_group: number | null;
            /**
             * Num Hits
             * @description Loads since it was stored
             */
            num_hits: number | null;
            /**
             * Request Id
             * @description Who stored it
             */
            request_id: string | null;
            /**
             * State
             * @description pinned: a load reads it, or a request that waits for a place found it; in_flight: given to a copy that is not complete; unknown: nothing about it stands in the rows that were read
             * @enum {string}
             */
            state: "free" | "cached" | "pinned" | "in_flight" | "unknown";
            /** Stored Wall Ns */
            stored_wall_ns: number | null;
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
            /**
             * Lost Tokens
             * @description Of the computed: what an endless tier would have given
             */
            lost_tokens: number | null;
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
        /** Turn */
        Turn: {
            /**
             * By Session
             * @description Grouped by the client's session id, not by its chain
             */
            by_session: boolean;
            /**
             * Lost From Index
             * @description Where its lookup was cut inside the shared blocks: there it lost its prefix; null: it did not
             */
            lost_from_index: number | null;
            /**
             * Previous Request Id
             * @description The turn that it goes on from
             */
            previous_request_id: string | null;
            request: components["schemas"]["RequestRow"];
            /**
             * Shared Blocks
             * @description Blocks of its prompt that the previous turn had, prompt and output
             */
            shared_blocks: number;
            /**
             * Turn
             * @description Its depth in the conversation, 1 is the first; two turns of one number are branches
             */
            turn: number;
        };
        /**
         * TurnRate
         * @description All turns of one number, over the conversations that were read.
         */
        TurnRate: {
            /** Cpu Hit Tokens */
            cpu_hit_tokens: number;
            /** Gpu Hit Tokens */
            gpu_hit_tokens: number;
            /** Hit Rate */
            hit_rate: number | null;
            /** Lost Tokens */
            lost_tokens: number;
            /** Num Turns */
            num_turns: number;
            /** Prompt Tokens */
            prompt_tokens: number;
            /** Restored Hit Tokens */
            restored_hit_tokens: number;
            /**
             * Turn
             * @description 1 is a conversation's first
             */
            turn: number;
        };
        /** WhatIf */
        WhatIf: {
            /** Engine Id */
            engine_id: number;
            /**
             * Hit Rate
             * @description What the engine itself found
             */
            hit_rate: number | null;
            /** Notes */
            notes: string[];
            /** Num Lookups */
            num_lookups: number;
            /** Prompt Tokens */
            prompt_tokens: number;
            /** Rows */
            rows: components["schemas"]["WhatIfRow"][];
        };
        /**
         * WhatIfRow
         * @description A tier of metadata that followed the traffic: what it gave and copied. Block counts are since the engine's start,
         *     whatever the range.
         */
        WhatIfRow: {
            /**
             * Cpu Blocks
             * @description Null: no bound
             */
            cpu_blocks: number | null;
            /** Cpu Bytes */
            cpu_bytes: number | null;
            /** Cpu Hit Tokens */
            cpu_hit_tokens: number;
            /** Gpu Hit Tokens */
            gpu_hit_tokens: number;
            /** Hit Rate */
            hit_rate: number | null;
            /** Policy */
            policy: string;
            /** Restored Blocks */
            restored_blocks: number;
            /** Stored Blocks */
            stored_blocks: number;
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
    get_benefit_api_benefit_get: {
        parameters: {
            query?: {
                /** @description Wall-clock nanoseconds since the epoch */
                since?: number | null;
                /** @description Wall-clock nanoseconds since the epoch */
                until?: number | null;
                /** @description `csv`: the rows as a file for a spreadsheet */
                format?: "json" | "csv";
                /** @description Which table `format=csv` gives */
                table?: "policies" | "regret" | "assumptions";
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
                     *       "assumptions": [
                     *         {
                     *           "label": "copying 256 tokens again",
                     *           "measured": 0.004,
                     *           "name": "restore_seconds",
                     *           "quoted": 0.0005,
                     *           "unit": "s"
                     *         },
                     *         {
                     *           "label": "bytes of 256 tokens",
                     *           "measured": 11796480,
                     *           "name": "restore_bytes",
                     *           "quoted": 2000000,
                     *           "unit": "B"
                     *         },
                     *         {
                     *           "label": "prefill of 256 tokens",
                     *           "measured": 0.4352,
                     *           "name": "prefill_seconds",
                     *           "quoted": 0.025,
                     *           "unit": "s"
                     *         },
                     *         {
                     *           "label": "prefill / copying again",
                     *           "measured": 108.8,
                     *           "name": "ratio",
                     *           "quoted": 50,
                     *           "unit": "×"
                     *         }
                     *       ],
                     *       "block_tokens": 32,
                     *       "hits_per_restore": 0.3333,
                     *       "holds": false,
                     *       "policies": [
                     *         {
                     *           "displaced_s": 0.0544,
                     *           "first_wall_ns": 1789999280000000000,
                     *           "hit_rate": 0.62,
                     *           "label": "tracked",
                     *           "last_wall_ns": 1790000000000000000,
                     *           "num_lookups": 48,
                     *           "policy_version": 7,
                     *           "prefill": {
                     *             "num_steps": 320,
                     *             "r_squared": 0.97,
                     *             "seconds_per_token": 0.0017
                     *           },
                     *           "prompt_tokens": 10000,
                     *           "regret": {
                     *             "evicted_blocks": 600,
                     *             "histogram": [
                     *               {
                     *                 "from_ns": 0,
                     *                 "num_blocks": 0,
                     *                 "to_ns": 100000000
                     *               },
                     *               {
                     *                 "from_ns": 100000000,
                     *                 "num_blocks": 2,
                     *                 "to_ns": 316227766
                     *               },
                     *               {
                     *                 "from_ns": 316227766,
                     *                 "num_blocks": 7
                     *               }
                     *             ],
                     *             "lost_tokens": 210,
                     *             "wanted_blocks": 9,
                     *             "wanted_owned_blocks": 6,
                     *             "wanted_share": 0.015
                     *           },
                     *           "restore": {
                     *             "copy_ns": 45000000,
                     *             "displaced_blocks": 12,
                     *             "displaced_wanted_blocks": 1,
                     *             "hit_tokens": 960,
                     *             "loaded_blocks": 30,
                     *             "measured_blocks": 90,
                     *             "restored_blocks": 90,
                     *             "restored_bytes": 132710400
                     *           },
                     *           "roi": 36.2666,
                     *           "saved_s": 1.632,
                     *           "spent_s": 0.045
                     *         }
                     *       ],
                     *       "since_wall_ns": 1789999280000000000,
                     *       "total": {
                     *         "displaced_s": 0.0544,
                     *         "hit_rate": 0.62,
                     *         "num_lookups": 48,
                     *         "prefill": {
                     *           "num_steps": 320,
                     *           "r_squared": 0.97,
                     *           "seconds_per_token": 0.0017
                     *         },
                     *         "prompt_tokens": 10000,
                     *         "regret": {
                     *           "evicted_blocks": 600,
                     *           "histogram": [
                     *             {
                     *               "from_ns": 0,
                     *               "num_blocks": 0,
                     *               "to_ns": 100000000
                     *             },
                     *             {
                     *               "from_ns": 100000000,
                     *               "num_blocks": 2,
                     *               "to_ns": 316227766
                     *             },
                     *             {
                     *               "from_ns": 316227766,
                     *               "num_blocks": 7
                     *             }
                     *           ],
                     *           "lost_tokens": 210,
                     *           "wanted_blocks": 9,
                     *           "wanted_owned_blocks": 6,
                     *           "wanted_share": 0.015
                     *         },
                     *         "restore": {
                     *           "copy_ns": 45000000,
                     *           "displaced_blocks": 12,
                     *           "displaced_wanted_blocks": 1,
                     *           "hit_tokens": 960,
                     *           "loaded_blocks": 30,
                     *           "measured_blocks": 90,
                     *           "restored_blocks": 90,
                     *           "restored_bytes": 132710400
                     *         },
                     *         "roi": 36.2666,
                     *         "saved_s": 1.632,
                     *         "spent_s": 0.045
                     *       },
                     *       "until_wall_ns": 1790000000000000000,
                     *       "verdict": "It does not hold here: a re-stored block that is hit once pays 109 times, but one in 3 was hit, so re-store gained 36 times what it spent."
                     *     }
                     */
                    "application/json": components["schemas"]["BenefitView"];
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
            /** @description An empty range, or one that cannot be drawn */
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
    get_causes_api_causes_get: {
        parameters: {
            query?: {
                /** @description Wall-clock nanoseconds since the epoch */
                since?: number | null;
                /** @description Wall-clock nanoseconds since the epoch */
                until?: number | null;
                /** @description Seconds a point; chosen to fit the range if not given */
                bucket?: number | null;
                /** @description `csv`: the rows as a file for a spreadsheet */
                format?: "json" | "csv";
                /** @description Which table `format=csv` gives */
                table?: "causes" | "points" | "examples";
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
                     *       "behind_tokens": 64,
                     *       "bucket_ns": 10000000000,
                     *       "causes": [
                     *         {
                     *           "behind_tokens": 64,
                     *           "cause": "evicted",
                     *           "detail": "owner_running",
                     *           "lost_share": 0.21,
                     *           "lost_tokens": 210,
                     *           "num_lookups": 3,
                     *           "prompt_tokens": 400
                     *         },
                     *         {
                     *           "behind_tokens": 0,
                     *           "cause": "never_seen",
                     *           "detail": "departs",
                     *           "lost_share": 0,
                     *           "lost_tokens": 0,
                     *           "num_lookups": 9,
                     *           "prompt_tokens": 600
                     *         }
                     *       ],
                     *       "cpu_hit_tokens": 380,
                     *       "directory": {
                     *         "capacity": 4096,
                     *         "engine_id": 1,
                     *         "num_forgotten": 0
                     *       },
                     *       "examples": [
                     *         {
                     *           "behind_tokens": 64,
                     *           "by_request_id": "chatcmpl-19bc",
                     *           "cause": "evicted",
                     *           "cut_index": 1,
                     *           "detail": "owner_running",
                     *           "engine_id": 1,
                     *           "lost_tokens": 128,
                     *           "missing_hash": "c0ffee11aa22bb33c0ffee11aa22bb33c0ffee11aa22bb33c0ffee11aa22bb33",
                     *           "prompt_tokens": 200,
                     *           "request_id": "chatcmpl-7f3a5f0c9a7e4a51-0-8b7d12aa",
                     *           "seq": 4712,
                     *           "since_ns": 2100000000,
                     *           "wall_ns": 1789999996100000000
                     *         }
                     *       ],
                     *       "gpu_hit_tokens": 240,
                     *       "lost_tokens": 210,
                     *       "num_lookups": 12,
                     *       "points": [
                     *         {
                     *           "lost_tokens": {
                     *             "evicted": 210
                     *           },
                     *           "prompt_tokens": 1000,
                     *           "wall_ns": 1789999990000000000
                     *         }
                     *       ],
                     *       "prompt_tokens": 1000,
                     *       "since_wall_ns": 1789999990000000000,
                     *       "until_wall_ns": 1790000000000000000
                     *     }
                     */
                    "application/json": components["schemas"]["Causes"];
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
            /** @description An empty range, or one that cannot be drawn */
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
    get_conversations_api_conversations_get: {
        parameters: {
            query?: {
                limit?: number;
                /** @description `next_before` of the page before */
                before?: number | null;
                /** @description `csv`: the rows as a file for a spreadsheet */
                format?: "json" | "csv";
                /** @description Which table `format=csv` gives */
                table?: "conversations" | "by_turn";
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
                     *       "by_turn": [
                     *         {
                     *           "cpu_hit_tokens": 0,
                     *           "gpu_hit_tokens": 32,
                     *           "hit_rate": 0.49230769230769234,
                     *           "lost_tokens": 32,
                     *           "num_turns": 1,
                     *           "prompt_tokens": 65,
                     *           "restored_hit_tokens": 0,
                     *           "turn": 1
                     *         }
                     *       ],
                     *       "conversations": [
                     *         {
                     *           "cpu_hit_tokens": 0,
                     *           "engine_id": 1,
                     *           "first_wall_ns": 1789999996000000000,
                     *           "gpu_hit_tokens": 32,
                     *           "hit_rate": 0.49230769230769234,
                     *           "id": "chatcmpl-7f3a5f0c9a7e4a51-0-8b7d12aa",
                     *           "last_seq": 4711,
                     *           "last_wall_ns": 1789999996000000000,
                     *           "lost_tokens": 32,
                     *           "num_lost_prefixes": 0,
                     *           "num_turns": 1,
                     *           "prompt_tokens": 65,
                     *           "restored_hit_tokens": 0
                     *         }
                     *       ],
                     *       "num_conversations": 1
                     *     }
                     */
                    "application/json": components["schemas"]["ConversationPage"];
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
    get_conversation_api_conversations__conversation_id__get: {
        parameters: {
            query?: {
                /** @description `csv`: the rows as a file for a spreadsheet */
                format?: "json" | "csv";
            };
            header?: never;
            path: {
                /** @description The id of any request of it, or the start of just one */
                conversation_id: string;
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
                     *       "conversation": {
                     *         "cpu_hit_tokens": 0,
                     *         "engine_id": 1,
                     *         "first_wall_ns": 1789999996000000000,
                     *         "gpu_hit_tokens": 32,
                     *         "hit_rate": 0.49230769230769234,
                     *         "id": "chatcmpl-7f3a5f0c9a7e4a51-0-8b7d12aa",
                     *         "last_seq": 4711,
                     *         "last_wall_ns": 1789999996000000000,
                     *         "lost_tokens": 32,
                     *         "num_lost_prefixes": 0,
                     *         "num_turns": 1,
                     *         "prompt_tokens": 65,
                     *         "restored_hit_tokens": 0
                     *       },
                     *       "hash_block_size": 32,
                     *       "turns": [
                     *         {
                     *           "by_session": false,
                     *           "request": {
                     *             "behind_tokens": 0,
                     *             "by_request_id": "chatcmpl-19bc",
                     *             "cause": "evicted",
                     *             "cause_detail": "owner_running",
                     *             "computed_tokens": 33,
                     *             "cpu_hit_tokens": 0,
                     *             "cut_index": 1,
                     *             "engine_id": 1,
                     *             "finished_wall_ns": 1789999999000000000,
                     *             "gpu_hit_tokens": 32,
                     *             "lost_tokens": 32,
                     *             "missing_hash": "c0ffee11aa22bb33c0ffee11aa22bb33c0ffee11aa22bb33c0ffee11aa22bb33",
                     *             "num_blocks": 2,
                     *             "num_preemptions": 0,
                     *             "output_tokens": 24,
                     *             "prompt_tokens": 65,
                     *             "request_id": "chatcmpl-7f3a5f0c9a7e4a51-0-8b7d12aa",
                     *             "restored_blocks": 1,
                     *             "restored_hit_tokens": 0,
                     *             "seq": 4711,
                     *             "since_ns": 2100000000,
                     *             "started_wall_ns": 1789999996000000000,
                     *             "state": "finished",
                     *             "status": "FINISHED_STOPPED",
                     *             "ttft_ns": 310000000
                     *           },
                     *           "shared_blocks": 0,
                     *           "turn": 1
                     *         }
                     *       ]
                     *     }
                     */
                    "application/json": components["schemas"]["ConversationDetail"];
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
            /** @description No such conversation, or several */
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
    get_engines_api_engines_get: {
        parameters: {
            query?: {
                /** @description `csv`: the rows as a file for a spreadsheet */
                format?: "json" | "csv";
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
                     *         "block_bytes": 1474560,
                     *         "directory_capacity": 4096,
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
                kind?: ("request_started" | "lookup" | "lookup_waits" | "blocks_stored" | "blocks_restored" | "blocks_evicted" | "blocks_loaded" | "blocks_missed" | "blocks_dropped" | "stores_refused" | "rule_switched" | "cursor_moved" | "request_preempted" | "request_finished" | "policy_applied" | "events_dropped" | "fault" | "cache_reset")[] | null;
                /** @description Only this request's rows: an id or its start */
                request?: string | null;
                limit?: number;
                /** @description `csv`: the rows as a file for a spreadsheet */
                format?: "json" | "csv";
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
                     *             "restored_hit_tokens": 0,
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
                kind?: ("request_started" | "lookup" | "lookup_waits" | "blocks_stored" | "blocks_restored" | "blocks_evicted" | "blocks_loaded" | "blocks_missed" | "blocks_dropped" | "stores_refused" | "rule_switched" | "cursor_moved" | "request_preempted" | "request_finished" | "policy_applied" | "events_dropped" | "fault" | "cache_reset")[] | null;
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
    get_export_api_export__table___format__get: {
        parameters: {
            query?: {
                /** @description Wall-clock nanoseconds since the epoch */
                since?: number | null;
                /** @description Wall-clock nanoseconds since the epoch */
                until?: number | null;
                /** @description One start of an engine */
                engine?: number | null;
            };
            header?: never;
            path: {
                table: "engines" | "policies" | "block_hashes" | "steps" | "events" | "retention_states";
                format: "parquet" | "csv" | "jsonl";
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The file: its first bytes come at once, whatever its length */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/jsonl": unknown;
                    "application/vnd.apache.parquet": unknown;
                    "text/csv": unknown;
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
            /** @description A table or format that is not exported, or an empty range */
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
    get_glance_api_glance_get: {
        parameters: {
            query?: {
                /** @description Wall-clock nanoseconds since the epoch */
                since?: number | null;
                /** @description Wall-clock nanoseconds since the epoch */
                until?: number | null;
                /** @description `csv`: the rows as a file for a spreadsheet */
                format?: "json" | "csv";
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
                     *       "double_tier": 0.78,
                     *       "from_cache": 0.62,
                     *       "lost_to_eviction": 0.21,
                     *       "numbers": [
                     *         {
                     *           "name": "from_cache",
                     *           "query": {},
                     *           "share": 0.62,
                     *           "view": "overview"
                     *         },
                     *         {
                     *           "name": "lost_to_eviction",
                     *           "query": {
                     *             "cause": "evicted"
                     *           },
                     *           "share": 0.21,
                     *           "view": "causes"
                     *         },
                     *         {
                     *           "name": "restore_would_have_saved",
                     *           "query": {
                     *             "cause": "evicted",
                     *             "detail": "owner_running"
                     *           },
                     *           "share": 0.09,
                     *           "view": "causes"
                     *         },
                     *         {
                     *           "name": "double_tier",
                     *           "query": {},
                     *           "share": 0.78,
                     *           "view": "whatif"
                     *         }
                     *       ],
                     *       "prompt_tokens": 10000,
                     *       "restore_would_have_saved": 0.09,
                     *       "sentence": "62 % of prompt tokens came from cache; 21 % were lost to CPU evictions, of which re-store could have saved 9 %; a tier twice as large would give 78 %.",
                     *       "since_wall_ns": 1789999100000000000,
                     *       "until_wall_ns": 1790000000000000000
                     *     }
                     */
                    "application/json": components["schemas"]["Glance"];
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
            /** @description An empty range, or one that cannot be drawn */
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
                     *             "mode": "tracked",
                     *             "retention": "lru"
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
                     *         "mode": "tracked",
                     *         "retention": "lru"
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
                     *             "mode": "tracked",
                     *             "retention": "lru"
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
                     *         "mode": "tracked",
                     *         "retention": "lru"
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
                     *             "mode": "tracked",
                     *             "retention": "lru"
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
                     *         "mode": "tracked",
                     *         "retention": "lru"
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
                /** @description `csv`: the rows as a file for a spreadsheet */
                format?: "json" | "csv";
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
                     *           "mode": "tracked",
                     *           "retention": "lru"
                     *         },
                     *         "applied": [
                     *           {
                     *             "applied": {
                     *               "enabled": true,
                     *               "max_restore_blocks_per_step": 64,
                     *               "mode": "tracked",
                     *               "retention": "lru"
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
                     *           "mode": "tracked",
                     *           "retention": "lru"
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
    get_report_api_report_get: {
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
                    "text/html": string;
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
            /** @description An empty range, or a log in which no engine ever ran */
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
                /** @description `csv`: the rows as a file for a spreadsheet */
                format?: "json" | "csv";
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
                     *           "behind_tokens": 0,
                     *           "by_request_id": "chatcmpl-19bc",
                     *           "cause": "evicted",
                     *           "cause_detail": "owner_running",
                     *           "computed_tokens": 33,
                     *           "cpu_hit_tokens": 0,
                     *           "cut_index": 1,
                     *           "engine_id": 1,
                     *           "finished_wall_ns": 1789999999000000000,
                     *           "gpu_hit_tokens": 32,
                     *           "lost_tokens": 32,
                     *           "missing_hash": "c0ffee11aa22bb33c0ffee11aa22bb33c0ffee11aa22bb33c0ffee11aa22bb33",
                     *           "num_blocks": 2,
                     *           "num_preemptions": 0,
                     *           "output_tokens": 24,
                     *           "prompt_tokens": 65,
                     *           "request_id": "chatcmpl-7f3a5f0c9a7e4a51-0-8b7d12aa",
                     *           "restored_blocks": 1,
                     *           "restored_hit_tokens": 0,
                     *           "seq": 4711,
                     *           "since_ns": 2100000000,
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
            query?: {
                /** @description `csv`: the rows as a file for a spreadsheet */
                format?: "json" | "csv";
                /** @description Which table `format=csv` gives */
                table?: "chain" | "lane" | "missed";
            };
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
                     *       "conversation_id": "chatcmpl-7f3a5f0c9a7e4a51-0-8b7d12aa",
                     *       "cut": {
                     *         "age_ns": 30000000000,
                     *         "behind_tokens": 0,
                     *         "by_request_id": "chatcmpl-19bc",
                     *         "cause": "evicted",
                     *         "cause_detail": "owner_running",
                     *         "evicted_step": 18190,
                     *         "index": 1,
                     *         "lost_tokens": 32,
                     *         "missing_hash": "c0ffee11aa22bb33c0ffee11aa22bb33c0ffee11aa22bb33c0ffee11aa22bb33",
                     *         "since_ns": 2100000000,
                     *         "was_owned": true
                     *       },
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
                     *             "restored_hit_tokens": 0,
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
                     *       "is_lane_complete": true,
                     *       "lane": [
                     *         {
                     *           "first_index": 0,
                     *           "kind": "lookup",
                     *           "num_blocks": 2,
                     *           "request_id": "chatcmpl-7f3a5f0c9a7e4a51-0-8b7d12aa",
                     *           "seq": 4712,
                     *           "spans": [
                     *             {
                     *               "num_blocks": 1,
                     *               "state": "gpu_hit"
                     *             },
                     *             {
                     *               "num_blocks": 1,
                     *               "state": "missing"
                     *             }
                     *           ],
                     *           "step": 18204,
                     *           "wall_ns": 1789999996100000000
                     *         }
                     *       ],
                     *       "missed": [
                     *         {
                     *           "by_request_id": "chatcmpl-19bc",
                     *           "evicted_step": 18190,
                     *           "first_index": 1,
                     *           "head_hash": "c0ffee11aa22bb33c0ffee11aa22bb33c0ffee11aa22bb33c0ffee11aa22bb33",
                     *           "is_by_restore": false,
                     *           "kv_group": 0,
                     *           "num_blocks": 1,
                     *           "num_owned": 1,
                     *           "seq": 4713,
                     *           "since_ns": 2100000000,
                     *           "tail_hash": "c0ffee11aa22bb33c0ffee11aa22bb33c0ffee11aa22bb33c0ffee11aa22bb33"
                     *         }
                     *       ],
                     *       "request": {
                     *         "behind_tokens": 0,
                     *         "by_request_id": "chatcmpl-19bc",
                     *         "cause": "evicted",
                     *         "cause_detail": "owner_running",
                     *         "computed_tokens": 33,
                     *         "cpu_hit_tokens": 0,
                     *         "cut_index": 1,
                     *         "engine_id": 1,
                     *         "finished_wall_ns": 1789999999000000000,
                     *         "gpu_hit_tokens": 32,
                     *         "lost_tokens": 32,
                     *         "missing_hash": "c0ffee11aa22bb33c0ffee11aa22bb33c0ffee11aa22bb33c0ffee11aa22bb33",
                     *         "num_blocks": 2,
                     *         "num_preemptions": 0,
                     *         "output_tokens": 24,
                     *         "prompt_tokens": 65,
                     *         "request_id": "chatcmpl-7f3a5f0c9a7e4a51-0-8b7d12aa",
                     *         "restored_blocks": 1,
                     *         "restored_hit_tokens": 0,
                     *         "seq": 4711,
                     *         "since_ns": 2100000000,
                     *         "started_wall_ns": 1789999996000000000,
                     *         "state": "finished",
                     *         "status": "FINISHED_STOPPED",
                     *         "ttft_ns": 310000000
                     *       },
                     *       "saved_prefill_s": 0.0544,
                     *       "saved_tokens": 32
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
    get_retention_api_retention_get: {
        parameters: {
            query?: {
                /** @description An engine's `id`; the newest if not given */
                engine?: number | null;
                limit?: number;
                /** @description `csv`: the rows as a file for a spreadsheet */
                format?: "json" | "csv";
                /** @description Which table `format=csv` gives */
                table?: "switches" | "classes";
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
                     *       "engine_id": 1,
                     *       "evicted_blocks": 5210,
                     *       "evicted_by_worth_blocks": 4870,
                     *       "num_refusals": 1034,
                     *       "num_switches": 1,
                     *       "retention": "adaptive",
                     *       "rule": "worth",
                     *       "rule_since_wall_ns": 1789999300000000000,
                     *       "since_wall_ns": 1789999280000000000,
                     *       "state": {
                     *         "asked_blocks": 9120.5,
                     *         "classes": [
                     *           {
                     *             "returns": 0,
                     *             "turns": 0,
                     *             "worth": [
                     *               0.02,
                     *               0.02,
                     *               0.01
                     *             ]
                     *           },
                     *           {
                     *             "returns": 81.5,
                     *             "turns": 1,
                     *             "worth": [
                     *               0.41,
                     *               0.4,
                     *               0.32
                     *             ]
                     *           }
                     *         ],
                     *         "edges_s": [
                     *           0,
                     *           0.5,
                     *           0.707
                     *         ],
                     *         "guard_lead": 0.01,
                     *         "horizon_s": 41.2,
                     *         "is_guard_on": false,
                     *         "lru_hit_rate": 0.134,
                     *         "num_reuses": 212,
                     *         "num_to_learn": 8,
                     *         "rule": "worth",
                     *         "step": 18204,
                     *         "wall_ns": 1790000000000000000,
                     *         "worth_hit_rate": 0.391
                     *       },
                     *       "switches": [
                     *         {
                     *           "asked_blocks": 640,
                     *           "from_rule": "lru",
                     *           "lru_hit_rate": 0.21,
                     *           "num_reuses": 8,
                     *           "reason": "learned",
                     *           "seq": 5120,
                     *           "step": 310,
                     *           "to_rule": "worth",
                     *           "wall_ns": 1789999300000000000,
                     *           "worth_hit_rate": 0.21
                     *         }
                     *       ]
                     *     }
                     */
                    "application/json": components["schemas"]["RetentionView"];
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
            /** @description No such engine, or none at all */
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
    get_shadows_api_shadows_get: {
        parameters: {
            query?: {
                /** @description Wall-clock nanoseconds since the epoch */
                since?: number | null;
                /** @description Wall-clock nanoseconds since the epoch */
                until?: number | null;
                /** @description Seconds a point; chosen to fit the range if not given */
                bucket?: number | null;
                /** @description `csv`: the rows as a file for a spreadsheet */
                format?: "json" | "csv";
                /** @description Which table `format=csv` gives */
                table?: "curve" | "shadows";
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
                     *       "curve": [
                     *         {
                     *           "cpu_blocks": 96,
                     *           "cpu_bytes": 141557760,
                     *           "hit_rate": 0.48,
                     *           "policy": "off"
                     *         },
                     *         {
                     *           "cpu_blocks": 192,
                     *           "cpu_bytes": 283115520,
                     *           "hit_rate": 0.71,
                     *           "policy": "off"
                     *         }
                     *       ],
                     *       "engine_id": 1,
                     *       "error": {
                     *         "name": "active",
                     *         "percentage_points": -0.2,
                     *         "worst_percentage_points": 1.4
                     *       },
                     *       "hit_rate": 0.62,
                     *       "is_caught_up": true,
                     *       "last_seq": 4211,
                     *       "notes": [
                     *         "What the GPU holds is taken as it was."
                     *       ],
                     *       "shadows": [
                     *         {
                     *           "cpu_blocks": 96,
                     *           "cpu_bytes": 141557760,
                     *           "cpu_hit_tokens": 9216,
                     *           "gpu_hit_tokens": 2048,
                     *           "hit_rate": 0.48,
                     *           "name": "off",
                     *           "points": [
                     *             {
                     *               "hit_rate": 0.48,
                     *               "wall_ns": 1796000000000000000
                     *             },
                     *             {
                     *               "wall_ns": 1796000010000000000
                     *             }
                     *           ],
                     *           "policy": "off",
                     *           "restored_blocks": 0,
                     *           "stored_blocks": 811
                     *         }
                     *       ]
                     *     }
                     */
                    "application/json": components["schemas"]["Shadows"];
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
            /** @description An empty range, an unknown policy, a size that is none */
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
                /** @description `csv`: the rows as a file for a spreadsheet */
                format?: "json" | "csv";
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
    get_tier_api_tier_get: {
        parameters: {
            query?: {
                /** @description An engine's `id`; the newest if not given */
                engine?: number | null;
                /** @description As of this row of the log; the last if not given */
                seq?: number | null;
                /** @description Wall-clock nanoseconds since the epoch */
                since?: number | null;
                /** @description Wall-clock nanoseconds since the epoch */
                until?: number | null;
                first_id?: number | null;
                limit?: number;
                /** @description `csv`: the rows as a file for a spreadsheet */
                format?: "json" | "csv";
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
                     *       "block_bytes": 1474560,
                     *       "blocks": [
                     *         {
                     *           "age_ns": 3500000000,
                     *           "conversation_id": "chatcmpl-7f3a5f0c9a7e4a51-0-8b7d12aa",
                     *           "eviction_rank": 0,
                     *           "hash": "5b9c1f0e6f4a7d215b9c1f0e6f4a7d215b9c1f0e6f4a7d215b9c1f0e6f4a7d21",
                     *           "id": 0,
                     *           "index": 0,
                     *           "is_restored": false,
                     *           "kv_group": 0,
                     *           "num_hits": 1,
                     *           "request_id": "chatcmpl-7f3a5f0c9a7e4a51-0-8b7d12aa",
                     *           "state": "cached",
                     *           "stored_wall_ns": 1789999996500000000
                     *         },
                     *         {
                     *           "id": 1,
                     *           "state": "free"
                     *         }
                     *       ],
                     *       "churn": 0.75,
                     *       "engine_id": 1,
                     *       "evicted_blocks": 600,
                     *       "evicted_unhit_blocks": 450,
                     *       "eviction_age": [
                     *         {
                     *           "from_ns": 0,
                     *           "num_blocks": 0,
                     *           "to_ns": 100000000
                     *         },
                     *         {
                     *           "from_ns": 100000000,
                     *           "num_blocks": 2,
                     *           "to_ns": 316227766
                     *         },
                     *         {
                     *           "from_ns": 316227766,
                     *           "num_blocks": 7
                     *         }
                     *       ],
                     *       "is_complete": true,
                     *       "is_order_approximate": false,
                     *       "num_blocks": 2,
                     *       "seq": 5120,
                     *       "since_wall_ns": 1789999280000000000,
                     *       "states": {
                     *         "cached": 1,
                     *         "free": 1
                     *       },
                     *       "until_wall_ns": 1790000000000000000,
                     *       "wall_ns": 1790000000000000000
                     *     }
                     */
                    "application/json": components["schemas"]["Tier"];
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
            /** @description No such engine, or none at all */
            404: {
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
                /** @description `csv`: the rows as a file for a spreadsheet */
                format?: "json" | "csv";
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
                     *           "lost_tokens": 210,
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
    get_whatif_api_whatif_get: {
        parameters: {
            query?: {
                /** @description Of off, tracked, adaptive, adaptive-off, unlimited */
                policies?: string;
                /** @description Sizes with commas; the engine's own if not given */
                cpu_gib?: string | null;
                /** @description The newest with traffic if not given */
                engine?: number | null;
                /** @description `csv`: the rows as a file for a spreadsheet */
                format?: "json" | "csv";
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
                     *       "engine_id": 1,
                     *       "hit_rate": 0.62,
                     *       "notes": [
                     *         "What the GPU holds is taken as it was."
                     *       ],
                     *       "num_lookups": 48,
                     *       "prompt_tokens": 23462,
                     *       "rows": [
                     *         {
                     *           "cpu_hit_tokens": 16252,
                     *           "gpu_hit_tokens": 2048,
                     *           "hit_rate": 0.78,
                     *           "policy": "unlimited",
                     *           "restored_blocks": 0,
                     *           "stored_blocks": 302
                     *         }
                     *       ]
                     *     }
                     */
                    "application/json": components["schemas"]["WhatIf"];
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
            /** @description Another what-if is being computed */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description An empty range, an unknown policy, a size that is none */
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
                     *       "is_recorded": false,
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
                     *       "is_recorded": false,
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
